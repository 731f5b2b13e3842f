#include "schedule/training_loop.hpp"

#include <algorithm>

#include "fsdplan/operators.hpp"
#include "schedule/optimizer_step.hpp"

namespace fsdplan {
namespace {

std::vector<LoopUnit> units_of(const LoweringInput& input) {
    std::vector<LoopUnit> units;
    for (const Unit& unit : input.plan.units) {
        LoopUnit& added = units.emplace_back();
        added.plan = &unit;
        added.modules = unit.modules.empty() ? std::vector{unit.module} : unit.modules;
        std::ranges::sort(added.modules);
        for (const ModuleIndex m : added.modules) {
            added.name += (m == added.modules.front() ? "" : ",") + input.tree.path(m);
        }
    }
    std::ranges::stable_sort(units, {}, [](const LoopUnit& unit) { return unit.modules.front(); });
    return units;
}

void add_once(std::vector<std::int32_t>& list, std::int32_t value) {
    if (std::ranges::find(list, value) == list.end()) {
        list.push_back(value);
    }
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
      program(forward_program(
          input.tree, input.operators == nullptr ? input.tree.calls : input.operators->calls, input.unread)),
      units(units_of(input)),
      emit(out),
      input_(input),
      out_(out),
      unit_of_tensor_(input.tree.tensors.size(), -1),
      unit_of_call_(program.calls.size(), -1),
      modules_left_(units.size(), 0),
      loss_in_model_(input.operators == nullptr ? input.job.loss_in_model : input.operators->loss_in_model) {
    reserve();
    std::vector<std::int32_t> unit_of_module(tree.size(), -1);
    for (std::size_t u = 0; u < units.size(); ++u) {
        out.units.push_back(units[u].name);
        for (const ModuleIndex m : units[u].modules) {
            unit_of_module[at(m)] = static_cast<std::int32_t>(u);
        }
        for (const TensorIndex t : units[u].plan->parameters) {
            unit_of_tensor_[at(t)] = static_cast<std::int32_t>(u);
        }
    }
    for (std::size_t c = 0; c < program.calls.size(); ++c) {
        unit_of_call_[c] = unit_of_module[at(program.calls[c].module)];
    }
    list_regions();
    list_borders();
    computation_ = computation_of(input, program, emit);
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(program.calls.size()); ++c) {
        if (region_of_[index(c)] == c) {
            const auto [first, last] = computation_->saving(c).value_or(
                Computation::Saving{first_saved_[index(c)], last_saved_[index(c)]});
            first_saved_[index(c)] = first;
            last_saved_[index(c)] = last;
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

// Who reads what across the border of which call. Borders matter for units and for checkpointed regions.
void TrainingLoop::list_borders() {
    results_.resize(program.calls.size());
    sources_.resize(program.calls.size());
    const auto has_border = [&](std::int32_t c) { return is_unit_call(c) || region_of_[index(c)] == c; };
    const auto parent = [&](std::int32_t c) { return program.calls[index(c)].parent; };
    for (std::int32_t reader = 0; reader < static_cast<std::int32_t>(program.calls.size()); ++reader) {
        for (const std::int32_t source : program.sources(reader)) {
            for (std::int32_t c = source; c >= 0 && !program.inside(reader, c); c = parent(c)) {
                if (has_border(c)) {
                    add_once(results_[index(c)], source);
                }
            }
            for (std::int32_t c = reader; c >= 0 && !program.inside(source, c); c = parent(c)) {
                if (has_border(c)) {
                    add_once(sources_[index(c)], source);
                }
            }
        }
    }
    for (const std::int32_t source : program.output_from) {
        for (std::int32_t c = source; c >= 0; c = parent(c)) {
            if (has_border(c)) {
                add_once(results_[index(c)], source);
            }
        }
    }
    // A result that nobody reads is a tensor all the same.
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(program.calls.size()); ++c) {
        if (has_border(c) && results_[index(c)].empty()) {
            for (std::int32_t leaf = program.calls[index(c)].end - 1; leaf >= c; --leaf) {
                if (program.calls[index(leaf)].leaf) {
                    results_[index(c)].push_back(leaf);
                    break;
                }
            }
        }
    }
}

void TrainingLoop::list_regions() {
    region_of_.assign(program.calls.size(), -1);
    first_saved_.assign(program.calls.size(), -1);
    last_saved_.assign(program.calls.size(), -1);
    std::vector<char> checkpointed(tree.size(), 0);
    for (const ModuleIndex m : job.activation_checkpointing.regions(tree)) {
        checkpointed[at(m)] = 1;
    }
    // A leaf whose result nobody reads handed its input through (dropout without effect): it saves nothing.
    std::vector<char> is_read(program.calls.size(), 0);
    for (const std::int32_t source : program.source) {
        is_read[index(source)] = 1;
    }
    for (const std::int32_t source : program.output_from) {
        is_read[index(source)] = 1;
    }
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(program.calls.size()); ++c) {
        const ForwardProgram::Call& call = program.calls[index(c)];
        const std::int32_t around = call.parent < 0 ? -1 : region_of_[index(call.parent)];
        region_of_[index(c)] = around >= 0 || checkpointed[at(call.module)] == 0 ? around : c;
        if (region_of_[index(c)] >= 0 && call.leaf && is_read[index(c)] != 0) {
            std::int32_t& first = first_saved_[index(region_of_[index(c)])];
            first = first < 0 ? c : first;
            last_saved_[index(region_of_[index(c)])] = c;
        }
    }
}

void TrainingLoop::run(UnitRuntime& runtime) {
    runtime_ = &runtime;
    allocate_module_buffers(std::nullopt);
    allocate_outside_units();
    runtime.begin();
    for (const std::int64_t bytes : input_.input_bytes) {
        allocate_bytes(bytes, Category::input);
    }
    for (iteration_ = 0; iteration_ < input_.iterations; ++iteration_) {
        out_.iteration_begin.push_back(static_cast<std::int64_t>(out_.ops.size()));
        step();
    }
}

void TrainingLoop::allocate_bytes(std::int64_t bytes, Category category) {
    emit.allocate(emit.buffer({.bytes = bytes, .category = category}));
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
}

void TrainingLoop::end_output(OutputLife life) {
    if (job.output == life) {
        computation_->drop_output();
    }
}

// Parameters that no unit manages lie whole on every rank; their gradients and states stay too.
void TrainingLoop::allocate_outside_units() {
    std::vector<char> seen(tree.tensors.size(), 0);
    for (const TensorIndex t : tree.parameter) {
        if (seen[at(t)] != 0 || unit_of_tensor_[at(t)] >= 0) {
            continue;
        }
        seen[at(t)] = 1;
        const Tensor& tensor = tree.tensors[at(t)];
        const std::int64_t bytes = bytes_of(tensor.numel, tensor.dtype).count;
        allocate_bytes(bytes, Category::replicated);
        if (tensor.requires_grad && computation_->is_priced()) {
            allocate_bytes(bytes, Category::replicated);  // gradient
            create_states(emit, job, tensor.numel, tensor.dtype, -1, Category::replicated);
        }
    }
}

void TrainingLoop::cast_buffers(DType dtype) {
    const std::vector<std::int32_t> before = std::move(module_buffers_);
    allocate_module_buffers(dtype);
    for (const std::int32_t buffer : before) {
        emit.release(buffer);
    }
}

// The floating-point ones in `dtype`, if it is given.
void TrainingLoop::allocate_module_buffers(std::optional<DType> dtype) {
    std::vector<TensorIndex> distinct = tree.buffer;
    std::ranges::sort(distinct);
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    module_buffers_.clear();
    for (const TensorIndex t : distinct) {
        const Tensor& tensor = tree.tensors[at(t)];
        const DType held = is_floating_point(tensor.dtype) ? dtype.value_or(tensor.dtype) : tensor.dtype;
        module_buffers_.push_back(
            emit.buffer({.bytes = bytes_of(tensor.numel, held).count, .category = Category::module_buffer}));
        emit.allocate(module_buffers_.back());
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
    // The loss is also part of the model's output.
    if (!losses_.empty() && job.output != OutputLife::next_forward) {
        emit.release(losses_[loss_now_]);
    }
    emit.mark(Mark::zero_grad);
}

void TrainingLoop::forward_backward() {
    tape.clear();
    const std::size_t calls = program.calls.size();
    result_.assign(calls, -1);
    output_.assign(calls, -1);
    inputs_.assign(calls, -1);
    recomputed_.assign(calls, 0);
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
    tape.backward(loss_in_model_ && output_[0] >= 0 ? output_[0] : loss_node_, visitor);
    user_code();
    runtime_->end_of_backward();
    computation_->free_graph();
    user_code();
    in_backward_ = false;
    emit.mark(Mark::backward_end);
    end_output(OutputLife::backward);
}

void TrainingLoop::compute_loss(std::int32_t reader) {
    loss_node_ = tape.add(Tape::Kind::loss, 0);
    for (const std::int32_t source : program.output_from) {
        const std::int32_t to = target(source, reader);
        if (to >= 0) {
            tape.edge(loss_node_, to);
        }
    }
    computation_->loss();
    hold_loss();
}

// Forward of one call. False when a recompute has all that it needs and stops.
bool TrainingLoop::walk(std::int32_t call) {
    using Placement = ActivationCheckpointing::Placement;
    const ActivationCheckpointing& checkpointing = job.activation_checkpointing;
    if (region_of_[index(call)] != call || in_backward_) {
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
        reentrant(call);
        return true;
    }
    const std::int32_t unit = unit_of_call_[index(call)];
    begin_unit(unit, call);
    grad_enabled_ = false;
    body(call, false, true);
    grad_enabled_ = true;
    reentrant(call);
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
        add_output_node(call);
    }
    if (--modules_left_[index(unit)] == 0) {
        runtime_->post_forward(unit, call);
    }
    user_code();
}

// An output that is the very tensor that an inner unit returned shares its node: hooks then run in the order
// in which they were registered, the inner unit's first.
void TrainingLoop::add_output_node(std::int32_t call) {
    const std::vector<std::int32_t>& results = results_[index(call)];
    if (!output_requires_grad(call)) {
        return;
    }
    const bool returns_loss = call == 0 && loss_node_ >= 0;
    if (results.size() == 1 && !returns_loss) {
        for (std::int32_t inner = call + 1; inner <= results.front(); ++inner) {
            if (output_[index(inner)] >= 0 && program.inside(results.front(), inner) &&
                results_[index(inner)] == results) {
                output_[index(call)] = output_[index(inner)];
                return;
            }
        }
    }
    const std::int32_t node = tape.add(Tape::Kind::output, call);
    if (returns_loss) {
        tape.edge(node, loss_node_);
    }
    for (const std::int32_t result : results) {
        const std::int32_t to = target(result, call);
        if (to >= 0 && !returns_loss) {
            tape.edge(node, to);
        }
    }
    output_[index(call)] = node;
}

bool TrainingLoop::output_requires_grad(std::int32_t call) const {
    return std::ranges::any_of(results_[index(call)],
                               [&](std::int32_t leaf) { return result_[index(leaf)] >= 0; });
}

bool TrainingLoop::has_grad_inputs(std::int32_t call) const {
    return std::ranges::any_of(sources_[index(call)],
                               [&](std::int32_t leaf) { return result_[index(leaf)] >= 0; });
}

// Node of the tensor through which `reader` sees a leaf's result: the output of the outermost unit around the
// leaf that has ended by then. Reader -1 is the loss.
std::int32_t TrainingLoop::target(std::int32_t source, std::int32_t reader) const {
    std::int32_t to = result_[index(source)];
    if (to < 0) {
        return -1;
    }
    for (std::int32_t c = source; c >= 0 && (reader < 0 || !program.inside(reader, c)) && c != reader;
         c = program.calls[index(c)].parent) {
        if (is_unit_call(c) && output_[index(c)] >= 0) {
            to = output_[index(c)];
        }
    }
    return to;
}

std::vector<std::int32_t> TrainingLoop::input_nodes(std::int32_t call) const {
    std::vector<std::int32_t> nodes;
    for (std::int32_t reader = call; reader < program.calls[index(call)].end; ++reader) {
        std::vector<std::int32_t> read;
        for (const std::int32_t source : program.sources(reader)) {
            const std::int32_t to = program.inside(source, call) ? -1 : target(source, reader);
            if (to >= 0) {
                add_once(read, to);
            }
        }
        // What reaches a leaf through another tensor that it reads (a residual stream) is no tensor of its
        // own.
        for (const std::int32_t node : read) {
            const bool behind = std::ranges::any_of(
                read, [&](std::int32_t other) { return other > node && tape.reaches(other, node); });
            if (!behind) {
                add_once(nodes, node);
            }
        }
    }
    return nodes;
}

// The gradient of what `reader` reads of `source` flows from `node` through the inputs of the units around
// it.
void TrainingLoop::read(std::int32_t node, std::int32_t reader, std::int32_t source,
                        bool inside_reader_unit) {
    if (result_[index(source)] < 0) {
        return;
    }
    std::int32_t from = node;
    const std::int32_t innermost = inside_reader_unit ? reader : program.calls[index(reader)].parent;
    for (std::int32_t c = innermost; c >= 0 && !program.inside(source, c);
         c = program.calls[index(c)].parent) {
        const bool at_border = c == border_;  // the inputs of a reentrant region are leaves of its own graph
        const bool unit_outside = at_border && job.activation_checkpointing.placement !=
                                                   ActivationCheckpointing::Placement::outside;
        if (is_unit_call(c) && inputs_[index(c)] >= 0 && !unit_outside) {
            tape.edge(from, inputs_[index(c)]);
            from = inputs_[index(c)];
        }
        if (at_border) {
            return;
        }
    }
    tape.edge(from, target(source, reader));
}

void TrainingLoop::compute(std::int32_t call) {
    const std::span<const std::int32_t> sources = program.sources(call);
    const std::span<const TensorIndex> parameters = program.parameters(call);
    if (!grad_enabled_) {
        computation_->forward(call, Computation::Forward::plain);
        result_[index(call)] = -1;
        return;
    }
    const bool differentiable =
        std::ranges::any_of(sources, [&](std::int32_t source) { return result_[index(source)] >= 0; }) ||
        std::ranges::any_of(parameters, [&](TensorIndex t) { return runtime_->tracks(t); });
    const std::int32_t region = region_of_[index(call)];
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
    result_[index(call)] = -1;
    if (!differentiable) {
        return;
    }
    const std::int32_t node = tape.add(Tape::Kind::compute, call);
    result_[index(call)] = node;
    for (const std::int32_t source : sources) {
        read(node, call, source, true);
    }
    for (const TensorIndex t : parameters) {
        const std::int32_t to = runtime_->tracks(t) ? runtime_->gradient_node(t) : -1;
        if (to >= 0) {
            tape.edge(node, to);
        }
    }
}

// The forward of a reentrant region left no graph; one node stands for it.
void TrainingLoop::reentrant(std::int32_t call) {
    if (!has_grad_inputs(call)) {
        return;
    }
    const std::int32_t node = tape.add(Tape::Kind::recompute, call);
    const bool inside = job.activation_checkpointing.placement != ActivationCheckpointing::Placement::outside;
    for (const std::int32_t source : sources_[index(call)]) {
        read(node, call, source, inside);
    }
    for (std::int32_t leaf = call; leaf < program.calls[index(call)].end; ++leaf) {
        if (program.calls[index(leaf)].leaf) {
            result_[index(leaf)] = node;
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
            computation_->loss_backward();
            user_code();
            break;
        case Tape::Kind::output:
        case Tape::Kind::root:
            user_code();
            break;
    }
}

void TrainingLoop::compute_backward(std::int32_t call) {
    const std::int32_t region = region_of_[index(call)];
    if (region >= 0 && !job.activation_checkpointing.reentrant && recomputed_[index(region)] == 0) {
        recomputed_[index(region)] = 1;
        recompute(region);
    }
    computation_->backward(call, [&](TensorIndex t) {
        if (runtime_->tracks(t)) {
            runtime_->gradient_computed(t);
        }
    });
    // What recomputes a region keeps its inputs until backward needs nothing of it any more.
    if (region >= 0 && first_saved_[index(region)] == call && !job.activation_checkpointing.reentrant) {
        computation_->release_inputs(region);
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
    stop_at_ = last_saved_[index(region)];
    body(region, placement == Placement::outside, placement != Placement::forward);
    stop_at_ = -1;
    throwaway_ = false;
    modules_left_ = left;
    emit.pass = Pass::backward;
}

void TrainingLoop::recompute_reentrant(std::int32_t region) {
    using Placement = ActivationCheckpointing::Placement;
    const Placement placement = job.activation_checkpointing.placement;
    const std::int32_t outer_border = border_;
    emit.pass = Pass::recompute;
    border_ = region;
    body(region, placement == Placement::outside, placement != Placement::forward);
    emit.pass = Pass::backward;
    const std::int32_t root = tape.add(Tape::Kind::root, region);
    for (const std::int32_t result : results_[index(region)]) {
        std::int32_t to = target(result, region);
        if (placement == Placement::outside && is_unit_call(region) && output_[index(region)] >= 0) {
            to = output_[index(region)];
        }
        if (to >= 0) {
            tape.edge(root, to);
        }
    }
    border_ = outer_border;
    BackwardVisitor visitor{*this};
    tape.backward(root, visitor);
    computation_->release_inputs(region);
}

}  // namespace fsdplan
