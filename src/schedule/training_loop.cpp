#include "schedule/training_loop.hpp"

#include <algorithm>
#include <utility>

#include "fsdplan/operators.hpp"
#include "schedule/outside_units.hpp"

namespace fsdplan {
namespace {

std::vector<LoopUnit> units_of(const LoweringInput& input) {
    std::vector<LoopUnit> units;
    for (const Unit& unit : input.plan.units) {
        LoopUnit& added = units.emplace_back();
        added.plan = &unit;
        added.modules = unit.modules.empty() ? std::vector{unit.module} : unit.modules;
        std::ranges::sort(added.modules);
    }
    std::ranges::stable_sort(units, {}, [](const LoopUnit& unit) { return unit.modules.front(); });
    return units;
}

std::string name_of(const LoopUnit& unit, const ModuleTree& tree) {
    std::string name;
    for (const ModuleIndex m : unit.modules) {
        name += (m == unit.modules.front() ? "" : ",") + tree.path(m);
    }
    return name;
}

std::vector<std::int32_t> units_of_tensors(const LoweringInput& input, const std::vector<LoopUnit>& units) {
    std::vector<std::int32_t> unit_of(input.tree.tensors.size(), -1);
    for (std::size_t u = 0; u < units.size(); ++u) {
        for (const TensorIndex t : units[u].plan->parameters) {
            unit_of[at(t)] = static_cast<std::int32_t>(u);
        }
    }
    return unit_of;
}

std::vector<std::int32_t> units_of_calls(const LoweringInput& input, const ForwardProgram& program,
                                         const std::vector<LoopUnit>& units) {
    std::vector<std::int32_t> unit_of_module(input.tree.size(), -1);
    for (std::size_t u = 0; u < units.size(); ++u) {
        for (const ModuleIndex m : units[u].modules) {
            unit_of_module[at(m)] = static_cast<std::int32_t>(u);
        }
    }
    std::vector<std::int32_t> unit_of;
    for (const ForwardProgram::Call& call : program.calls) {
        unit_of.push_back(unit_of_module[at(call.module)]);
    }
    return unit_of;
}

}  // namespace

struct BackwardVisitor {
    TrainingLoop& loop;
    void hook(const Tape::Hook& hook) const {
        loop.runtime_->hook(hook);
        loop.user_code();
    }
    void run(std::int32_t node) const { loop.run_node(node); }
};

TrainingLoop::TrainingLoop(const LoweringInput& input, Schedule& out)
    : tree(input.tree),
      job(input.job),
      program(forward_program(input.tree,
                              input.operators == nullptr ? input.tree.calls : input.operators->calls,
                              input.unread, input.operators)),
      units(units_of(input)),
      emit(out),
      input_(input),
      out_(out),
      unit_of_tensor_(units_of_tensors(input, units)),
      unit_of_call_(units_of_calls(input, program, units)),
      modules_left_(units.size(), 0),
      takes_gradients_(program.calls.size(), 0),
      loss_in_model_(input.operators == nullptr ? input.job.loss_in_model : input.operators->loss_in_model),
      regions_(checkpointed_regions(program, tree, job.activation_checkpointing)),
      borders_(call_borders(program, unit_of_call_, regions_)),
      graph_(program, borders_, unit_of_call_, job.activation_checkpointing, tape) {
    reserve();
    for (const LoopUnit& unit : units) {
        out.units.push_back(name_of(unit, tree));
    }
    computation_ = computation_of(input, program, emit);
    if (input.operators != nullptr) {
        for (const std::int32_t leaf : input.operators->gradient_inputs) {
            takes_gradients_[index(leaf)] = 1;
        }
    }
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(program.calls.size()); ++c) {
        if (regions_.begins_at(c)) {
            const auto [first, last] = computation_->saving(c).value_or(
                Computation::Saving{regions_.first_saved[index(c)], regions_.last_saved[index(c)]});
            regions_.first_saved[index(c)] = first;
            regions_.last_saved[index(c)] = last;
        }
    }
}

// About what FSDP2 takes, which handles parameters one by one; the others need less.
void TrainingLoop::reserve() {
    constexpr std::size_t ops_per_call = 4;
    constexpr std::size_t ops_per_unit = 48;
    constexpr std::size_t ops_per_parameter = 8;  // an iteration, and as many to begin with
    constexpr std::size_t buffers_each = 10;
    const std::size_t calls = program.calls.size();
    const std::size_t parameters = tree.parameter.size();
    const auto iterations = static_cast<std::size_t>(input_.iterations * job.accumulate);
    emit.reserve(iterations * (ops_per_call * calls + ops_per_unit * units.size()) +
                     (iterations + 1) * ops_per_parameter * parameters,
                 calls + buffers_each * (units.size() + parameters));
}

void TrainingLoop::run(UnitRuntime& runtime) {
    runtime_ = &runtime;
    module_buffers_ = allocate_module_buffers(tree, std::nullopt, emit);
    allocate_outside_units(tree, job, unit_of_tensor_, computation_->is_priced(), emit);
    runtime.begin();
    for (const std::int64_t bytes : input_.input_bytes) {
        emit.allocate(emit.buffer({.bytes = bytes, .category = Category::input}));
    }
    for (iteration_ = 0; iteration_ < input_.iterations; ++iteration_) {
        out_.iteration_begin.push_back(static_cast<std::int64_t>(out_.ops.size()));
        step();
    }
}

// The variable that holds the loss of the forward before forgets it when this one returns.
void TrainingLoop::hold_loss() {
    if (!computation_->is_priced()) {
        return;
    }
    constexpr std::size_t held = 2;
    while (losses_.size() < held) {
        losses_.push_back(
            emit.buffer({.bytes = bytes_of(1, DType::float32).count, .category = Category::temporary}));
    }
    const std::int32_t before = losses_[loss_now_];
    loss_now_ = 1 - loss_now_;
    emit.allocate(losses_[loss_now_]);
    emit.release(before);
    computation_->drop_graph();
}

void TrainingLoop::end_output(OutputLife life) {
    if (job.output == life) {
        computation_->drop_output();
    }
}

void TrainingLoop::cast_buffers(DType dtype) {
    const std::vector<std::int32_t> before =
        std::exchange(module_buffers_, allocate_module_buffers(tree, dtype, emit));
    for (const std::int32_t buffer : before) {
        emit.release(buffer);
    }
}

void TrainingLoop::step() {
    if (job.zero_grad_first) {
        emit.pass = Pass::forward;
        runtime_->zero_grad();
    }
    for (std::int64_t i = 0; i < job.accumulate; ++i) {
        const bool last = i + 1 == job.accumulate;
        emit.pass = Pass::forward;
        if (job.accumulate > 1) {
            user_code();
            emit.mark(Mark::microbatch, -1, i);
        }
        runtime_->begin_microbatch(last);
        forward_backward();
    }
    user_code();
    if (job.clip_norm) {
        emit.pass = Pass::clip;
        runtime_->clip();
        user_code();
    }
    emit.pass = Pass::optimizer;
    runtime_->optimizer_step();
    emit.mark(Mark::optimizer_step);
    if (!job.zero_grad_first) {
        runtime_->zero_grad();
    }
    if (job.reads_loss) {
        emit.copy(bytes_of(1, DType::float32).count, -1, Stream::compute, OpKind::to_host);
        emit.block(emit.record(Stream::compute));
    }
    // A loss that the model works out is part of its output too.
    if (!losses_.empty() && !(loss_in_model_ && job.output == OutputLife::next_forward)) {
        emit.release(losses_[loss_now_]);
        computation_->drop_graph();
    }
    emit.mark(Mark::zero_grad);
}

void TrainingLoop::forward_backward() {
    tape.clear();
    graph_.clear();
    recomputed_.assign(program.calls.size(), 0);
    grad_enabled_ = true;

    loss_node_ = -1;
    walk(0);
    if (loss_node_ < 0) {
        compute_loss(-1);
    }
    end_output(OutputLife::loss);
    emit.mark(Mark::loss);

    emit.pass = Pass::backward;
    in_backward_ = true;
    BackwardVisitor visitor{*this};
    tape.backward(loss_in_model_ && output_node(0) >= 0 ? output_node(0) : loss_node_, visitor);
    user_code();
    runtime_->end_of_backward();
    computation_->leave_graph();
    user_code();
    in_backward_ = false;
    emit.mark(Mark::backward_end);
    end_output(OutputLife::backward);
}

void TrainingLoop::compute_loss(std::int32_t reader) {
    loss_node_ = graph_.add_loss(reader);
    computation_->loss();
    hold_loss();
}

// Forward of one call. False when a recompute has all that it needs and stops.
bool TrainingLoop::walk(std::int32_t call) {
    using Placement = ActivationCheckpointing::Placement;
    const ActivationCheckpointing& checkpointing = job.activation_checkpointing;
    if (!regions_.begins_at(call) || in_backward_) {
        return body(call, true, true);
    }
    // A reentrant checkpoint is a node like others: without gradients to wait for it keeps nothing.
    if (!checkpointing.reentrant || has_grad_inputs(call)) {
        computation_->keep_inputs(call);
    }
    const bool around_unit = checkpointing.placement == Placement::outside;
    if (!checkpointing.reentrant) {
        return body(call, true, true);
    }
    if (around_unit) {
        grad_enabled_ = false;
        body(call, true, true);
        grad_enabled_ = true;
        graph_.add_reentrant(call);
        return true;
    }
    const std::int32_t unit = unit_of_call_[index(call)];
    begin_unit(unit, call);
    grad_enabled_ = false;
    body(call, false, true);
    grad_enabled_ = true;
    graph_.add_reentrant(call);
    end_unit(unit, call);
    return true;
}

bool TrainingLoop::body(std::int32_t call, bool with_unit, bool with_marks) {
    const std::int32_t unit = unit_of_call_[index(call)];
    if (with_unit) {
        begin_unit(unit, call);
    }
    const auto module = static_cast<std::int32_t>(program.calls[index(call)].module);
    if (unit >= 0 && with_marks) {
        emit.mark_module(Mark::forward_begin, module, unit);
    }
    if (!children(call)) {
        return false;
    }
    if (call == 0 && loss_in_model_ && !in_backward_) {
        compute_loss(0);
    }
    if (unit >= 0 && with_marks) {
        emit.mark_module(Mark::forward_end, module, unit);
    }
    if (with_unit) {
        end_unit(unit, call);
    }
    return true;
}

bool TrainingLoop::children(std::int32_t call) {
    const ForwardProgram::Call& c = program.calls[index(call)];
    if (c.leaf) {
        compute(call);
        return call != stop_at_;
    }
    for (std::int32_t child = call + 1; child < c.end; child = program.calls[index(child)].end) {
        if (!walk(child)) {
            return false;
        }
    }
    return true;
}

void TrainingLoop::begin_unit(std::int32_t unit, std::int32_t call) {
    if (unit < 0) {
        return;
    }
    if (modules_left_[index(unit)] == 0) {
        modules_left_[index(unit)] = static_cast<std::int32_t>(units[index(unit)].modules.size());
    }
    runtime_->pre_forward(unit, call);
}

void TrainingLoop::end_unit(std::int32_t unit, std::int32_t call) {
    if (unit < 0) {
        return;
    }
    if (grad_enabled_ && !throwaway_) {
        graph_.add_output(call, call == 0 ? loss_node_ : -1);
    }
    if (--modules_left_[index(unit)] == 0) {
        runtime_->post_forward(unit, call);
    }
    user_code();
}

void TrainingLoop::compute(std::int32_t call) {
    const std::span<const TensorIndex> parameters = program.parameters(call);
    if (!grad_enabled_) {
        computation_->forward(call, Computation::Forward::plain);
        graph_.detach(call);
        return;
    }
    const bool differentiable =
        graph_.reads_grad(call) || takes_gradients_[index(call)] != 0 ||
        std::ranges::any_of(parameters, [&](TensorIndex t) { return runtime_->tracks(t); });
    const std::int32_t region = regions_.around[index(call)];
    // In a checkpointed region only the recomputed forward saves anything.
    using Forward = Computation::Forward;
    const bool saves = differentiable && (region < 0 || in_backward_);
    computation_->forward(call, !saves             ? Forward::plain
                                : call == stop_at_ ? Forward::stopping
                                : in_backward_     ? Forward::recomputing
                                                   : Forward::saving);
    if (throwaway_) {
        return;
    }
    if (!differentiable) {
        graph_.detach(call);
        return;
    }
    const std::int32_t node = graph_.add_leaf(call);
    for (const TensorIndex t : parameters) {
        const std::int32_t to = runtime_->tracks(t) ? runtime_->gradient_node(t) : -1;
        if (to >= 0) {
            tape.edge(node, to);
        }
    }
}

void TrainingLoop::run_node(std::int32_t n) {
    const Tape::Node node = tape.node(n);
    switch (node.kind) {
        case Tape::Kind::compute:
            compute_backward(node.subject);
            break;
        case Tape::Kind::recompute:
            recompute_reentrant(node.subject);
            break;
        case Tape::Kind::inputs:
        case Tape::Kind::split:
        case Tape::Kind::accumulate:
            runtime_->node(node);
            user_code();
            break;
        case Tape::Kind::loss:
            computation_->loss_backward([&](TensorIndex t) { gradient_computed(t); });
            user_code();
            break;
        case Tape::Kind::output:
        case Tape::Kind::root:
            user_code();
            break;
    }
}

void TrainingLoop::compute_backward(std::int32_t call) {
    const std::int32_t region = regions_.around[index(call)];
    const bool unpacks = region >= 0 && !job.activation_checkpointing.reentrant;
    if (unpacks && recomputed_[index(region)] == 0) {
        recomputed_[index(region)] = 1;
        recompute(region);
    }
    // What recomputes a region keeps its inputs until backward needs nothing of it any more.
    const bool ends_region = unpacks && regions_.first_saved[index(region)] == call;
    computation_->backward(call, {.active = unpacks, .last_of = ends_region ? region : -1},
                           [&](TensorIndex t) { gradient_computed(t); });
}

void TrainingLoop::gradient_computed(TensorIndex t) {
    if (runtime_->tracks(t)) {
        runtime_->gradient_computed(t);
    }
}

// Plays a region's forward again up to the last tensor that backward needs. Its graph is thrown away:
// backward goes on in the old one.
void TrainingLoop::recompute(std::int32_t region) {
    using Placement = ActivationCheckpointing::Placement;
    const Placement placement = job.activation_checkpointing.placement;
    const std::vector<std::int32_t> left = modules_left_;
    emit.pass = Pass::recompute;
    throwaway_ = true;
    stop_at_ = regions_.last_saved[index(region)];
    body(region, placement == Placement::outside, placement != Placement::forward);
    stop_at_ = -1;
    throwaway_ = false;
    modules_left_ = left;
    emit.pass = Pass::backward;
}

void TrainingLoop::recompute_reentrant(std::int32_t region) {
    using Placement = ActivationCheckpointing::Placement;
    const Placement placement = job.activation_checkpointing.placement;
    emit.pass = Pass::recompute;
    const std::int32_t outer = graph_.set_border(region);
    body(region, placement == Placement::outside, placement != Placement::forward);
    emit.pass = Pass::backward;
    const std::int32_t root = graph_.add_root(region);
    graph_.set_border(outer);
    BackwardVisitor visitor{*this};
    tape.backward(root, visitor);
    computation_->drop_recomputed();
    computation_->release_inputs(region);
}

}  // namespace fsdplan
