#include "schedule/lower_zero.hpp"

#include <algorithm>
#include <array>

#include "schedule/optimizer_step.hpp"
#include "schedule/whole_model.hpp"
#include "schedule/zero12.hpp"
#include "schedule/zero3.hpp"

// DeepSpeed ZeRO.
namespace fsdplan {
namespace {

constexpr DType master_dtype = DType::float32;

/// Fetched as a whole by default: which experts a token needs is not known before.
constexpr std::array leaf_classes{std::string_view("MixtralSparseMoeBlock"),
                                  std::string_view("Qwen2MoeSparseMoeBlock"),
                                  std::string_view("Qwen3MoeSparseMoeBlock")};

std::vector<ModuleIndex> leaf_modules(const ModuleTree& tree) {
    std::vector<ModuleIndex> out;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const std::string_view name = short_name(tree.class_info(static_cast<ModuleIndex>(m)).name);
        if (std::ranges::find(leaf_classes, name) != leaf_classes.end()) {
            out.push_back(static_cast<ModuleIndex>(m));
        }
    }
    return out;
}

zero::Options options_of(const TrainingJob& job, int stage) {
    return {{.stage = stage,
             .communication_dtype = job.reduce_dtype,
             .ranks = job.mesh.ranks(),
             .accumulate = job.accumulate,
             .clips_gradients = job.clip_norm.has_value()},
            job.zero};
}

/// What the stages share: parameters in one dtype, float32 masters of what a rank owns, buckets of gradients.
class Zero : public WholeModel {
public:
    Zero(const LoweringInput& input, WrapPlan plan, int stage, Schedule& out)
        : WholeModel(input, std::move(plan), out), options(options_of(job, stage)) {
        options.dtype =
            job.param_dtype.value_or(parameter_rows.empty() ? DType::float32 : parameter_rows.front().dtype);
        for (Row& r : parameter_rows) {
            r.dtype = options.dtype;
            parameters.push_back({.numel = r.numel,
                                  .trainable = r.trainable,
                                  .created = static_cast<std::int32_t>(parameters.size())});
        }
    }

    void clip() override {}  // part of its own step

protected:
    void issue(const zero::Event& event) { send(event.call, event.module, event.prefetched); }

    /// One after the other, computation waits for each.
    void issue_and_wait(const std::vector<zero::Event>& events) {
        for (const zero::Event& event : events) {
            issue(event);
            wait_for_sent();
        }
    }

    std::int64_t bytes(std::int64_t numel) const { return bytes_of(numel, options.dtype).count; }

    /// Of gradients that are kept until the step.
    std::int64_t accumulated_bytes(std::int64_t numel) const {
        return bytes_of(numel, options.float32_accumulation ? DType::float32 : options.dtype).count;
    }

    /// Gradients are copied into a buffer of one bucket and go at once.
    bool goes_into_buffer(const Row& r) const {
        return options.contiguous_gradients && r.numel <= options.reduce_bucket_size;
    }

    void step_over(std::int64_t numel) {
        emit.host(HostWork::optimizer, -1);
        const LocalParameter masters{.numel = numel, .dtype = master_dtype};
        if (gradient_in_float32_ < 0) {  // the first step
            create_states(emit, job, masters, 0);
            gradient_in_float32_ = buffer(bytes_of(numel, master_dtype).count, Category::optimizer_temporary);
        }
        if (options.dtype != master_dtype) {
            emit.allocate(gradient_in_float32_);
        }
        LocalParameters local;
        local.add(masters);
        emit_optimizer(emit, job, local, loop.multiprocessors());
        emit.release(gradient_in_float32_);
        emit.copy(bytes(numel), 0, Stream::compute);  // masters to parameters
    }

    zero::Options options;
    std::vector<zero::Parameter> parameters;
    std::int32_t gradient_buffer = -1;  // contiguous gradients

private:
    std::int32_t gradient_in_float32_ = -1;
};

class Zero12 final : public Zero {
public:
    Zero12(const LoweringInput& input, int stage, Schedule& out)
        : Zero(input, one_unit(input.tree), stage, out),
          groups_(zero::stored_groups(parameters, options)),
          reducer_(parameters, options) {}

    void begin() override {
        for (const zero::FlatGroup& group : groups_) {
            emit.allocate(buffer(bytes(group.flat_numel), Category::shard));
            if (options.dtype != master_dtype) {
                emit.allocate(
                    buffer(bytes_of(group.partition_numel, master_dtype).count, Category::optimizer));
            }
            partition_numel_ += group.partition_numel;
            for (const std::int32_t r :
                 zero::partition_of(group, parameters, lowering.rank.value_or(0)).parameters) {
                row_is_mine_[static_cast<std::size_t>(r)] = 1;
            }
        }
        for (const Row& r : parameter_rows) {
            if (!r.trainable) {
                emit.allocate(buffer(r.bytes(), Category::shard));
            }
        }
        WholeModel::begin();
        issue_and_wait(zero::broadcast_parameters(parameters, options));
        if (options.contiguous_gradients) {
            gradient_buffer = buffer(bytes(options.reduce_bucket_size), Category::reduce_input);
        }
        partition_gradient_ = buffer(accumulated_bytes(partition_numel_), Category::gradient_shard);
    }

    void end_of_backward() override {
        if (zero::reduces_during_backward(options) && reduces_now()) {
            reduce(reducer_.flush());
        } else if (last_microbatch) {
            for (const zero::Event& event :
                 zero::reduce_after_backward(parameters, options, trained_rows())) {
                reduce({event});
            }
        }
        if (gradient_buffer >= 0) {
            emit.release(gradient_buffer);
        }
    }

    void optimizer_step() override {
        issue_and_wait(zero::checks_before_step(parameters, options));
        for (Row& r : parameter_rows) {
            drop_gradient(r);
        }
        step_over(partition_numel_);
        issue_and_wait(zero::gathers_after_step(parameters, options));
    }

    void zero_grad() override {
        WholeModel::zero_grad();
        emit.release(partition_gradient_);
    }

protected:
    void gradient_ready(std::int32_t r) override {
        if (options.contiguous_gradients && !emit.is_live(gradient_buffer)) {
            emit.allocate(gradient_buffer);
        }
        if (!zero::reduces_during_backward(options) || !reduces_now()) {
            return;
        }
        reduce(reducer_.add(r));
        if (goes_into_buffer(row(r))) {
            emit.copy(row(r).bytes(), 0, Stream::compute);  // into the bucket, which replaces it
            if (options.stage == 2) {
                drop_gradient(row(r));
            }
        }
    }

private:
    bool reduces_now() const { return options.stage == 2 || last_microbatch; }

    void reduce(const std::vector<zero::Event>& events) {
        for (const zero::Event& event : events) {
            issue(event);
            wait_for_sent();
            if (!emit.is_live(partition_gradient_)) {
                emit.allocate(partition_gradient_);
            }
            for (const std::int32_t r : event.parameters) {
                if (row_is_mine_[static_cast<std::size_t>(r)] != 0) {
                    emit.copy(row(r).bytes(), 0, Stream::compute);
                }
                if (options.stage == 2) {
                    drop_gradient(row(r));
                }
            }
        }
    }

    std::vector<zero::FlatGroup> groups_;
    zero::BucketReducer reducer_;
    std::vector<char> row_is_mine_ = std::vector<char>(parameter_rows.size(), 0);
    std::int64_t partition_numel_ = 0;
    std::int32_t partition_gradient_ = -1;
};

class Zero3 final : public Zero {
public:
    Zero3(const LoweringInput& input, Schedule& out)
        : Zero(input, every_module(input.tree, leaf_modules(input.tree)), 3, out),
          layout_(zero::layout3(parameters, options)),
          coordinator_(parameters, modules(), options),
          bucket_reducer_(parameters, options) {}

    void begin() override {
        for (std::size_t i = 0; i < parameter_rows.size(); ++i) {
            Row& r = parameter_rows[i];
            emit.allocate(buffer(bytes(layout_.partition_numel[i]), Category::shard));
            r.stored = buffer(bytes(layout_.partition_numel[i] * options.ranks), Category::unsharded);
            if (r.trainable) {
                owned_numel_ += layout_.partition_numel[i];
            }
        }
        if (options.dtype != master_dtype) {
            emit.allocate(buffer(bytes_of(owned_numel_, master_dtype).count, Category::optimizer));
        }
        WholeModel::begin();
        if (options.contiguous_gradients) {
            gradient_buffer = buffer(bytes(options.reduce_bucket_size), Category::reduce_input);
            emit.allocate(gradient_buffer);
        }
        partition_gradient_ = buffer(accumulated_bytes(owned_numel_), Category::gradient_shard);
        issue_and_wait(zero::zero3_construction(parameters, options));
    }

    void begin_microbatch(bool last) override {
        WholeModel::begin_microbatch(last);
        hooked_.clear();
        pending_.clear();
        std::vector<zero::Event> events;
        coordinator_.begin_forward(events);
        carry_out(events);
    }

    void pre_forward(std::int32_t unit, std::int32_t call) override {
        visit(
            {.module = unit, .enter = true, .backward = loop.in_backward(), .recompute = loop.in_backward()});
        if (!loop.in_backward() && loop.grad_enabled() && loop.has_grad_inputs(call)) {
            loop.set_inputs_node(call, loop.tape.add(Tape::Kind::inputs, unit));
        }
    }

    void post_forward(std::int32_t unit, std::int32_t call) override {
        visit({.module = unit,
               .enter = false,
               .backward = loop.in_backward(),
               .recompute = loop.in_backward()});
        const std::int32_t node = loop.output_node(call);
        if (loop.in_backward() || !loop.grad_enabled() || node < 0) {
            return;
        }
        // Modules that hand the same tensor on: DeepSpeed puts a node of its own behind each, so backward
        // meets the outermost first.
        const auto found = std::ranges::find(hooked_, node);
        if (found == hooked_.end()) {
            hooked_.push_back(node);
            pending_.push_back({unit});
            loop.tape.hook(node, 0, static_cast<std::int32_t>(hooked_.size()) - 1);
        } else {
            pending_[static_cast<std::size_t>(found - hooked_.begin())].push_back(unit);
        }
    }

    void hook(const Tape::Hook& hook) override {
        const std::vector<std::int32_t> units = pending_[static_cast<std::size_t>(hook.subject)];
        for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
            visit({.module = *unit, .enter = true, .backward = true});
        }
    }

    void node(const Tape::Node& node) override {
        if (node.kind == Tape::Kind::inputs) {
            visit({.module = node.subject, .enter = false, .backward = true});
            return;
        }
        WholeModel::node(node);
    }

    void end_of_backward() override {
        reduce(bucket_reducer_.flush());
        coordinator_.end_backward();
        follow();
    }

    void optimizer_step() override {
        coordinator_.partition_all();
        follow();
        if (options.dtype == DType::float16) {
            issue_and_wait({{.call = zero::world_call(options, CollectiveKind::all_reduce, DType::uint8, 1, 1,
                                                      Reduction::maximum)}});
        }
        for (std::size_t g = 0; g < layout_.sub_groups.size(); ++g) {
            issue_and_wait({{.call = zero::world_call(options, CollectiveKind::all_reduce, DType::float64, 1,
                                                      1, Reduction::sum)}});
        }
        step_over(owned_numel_);
        std::vector<zero::Event> events;
        coordinator_.gather_persistent(events);
        carry_out(events);
        wait_for_sent();
    }

    void zero_grad() override {
        WholeModel::zero_grad();
        emit.release(partition_gradient_);
    }

protected:
    void gradient_ready(std::int32_t r) override {
        reduce(bucket_reducer_.add(r));
        if (goes_into_buffer(row(r))) {
            emit.copy(row(r).bytes(), 0, Stream::compute);
            drop_gradient(row(r));
        }
    }

private:
    std::vector<zero::Module> modules() const {
        const ModuleTree& tree = loop.tree;
        const std::vector<ModuleIndex> leaves = leaf_modules(tree);
        std::vector<zero::Module> out;
        for (const LoopUnit& unit : loop.units) {
            const ModuleIndex m = unit.modules.front();
            zero::Module& module = out.emplace_back();
            module.leaf = std::ranges::find(leaves, m) != leaves.end();
            for (std::size_t r = at(m); r < static_cast<std::size_t>(tree.subtree_end[at(m)]); ++r) {
                for (const TensorIndex t : tree.parameters(static_cast<ModuleIndex>(r))) {
                    module.below.push_back(row_of[at(t)]);
                }
            }
            for (const TensorIndex t : tree.parameters(m)) {
                module.parameters.push_back(row_of[at(t)]);
            }
        }
        return out;
    }

    void visit(const zero::Hook& hook) {
        std::vector<zero::Event> events;
        emit.host(HostWork::unit_hook, hook.module);
        coordinator_.hook(hook, events);
        carry_out(events);
        if (hook.enter) {
            wait_for_sent();
        }
    }

    /// Sends what the coordinator decided and lets memory follow its book-keeping.
    void carry_out(const std::vector<zero::Event>& events) {
        follow();
        for (const zero::Event& event : events) {
            issue(event);
        }
    }

    void follow() {
        for (std::size_t i = 0; i < parameter_rows.size(); ++i) {
            const bool gathered = coordinator_.is_gathered(static_cast<std::int32_t>(i));
            if (gathered && !emit.is_live(parameter_rows[i].stored)) {
                emit.allocate(parameter_rows[i].stored);
            } else if (!gathered) {
                emit.release(parameter_rows[i].stored);
            }
        }
    }

    void reduce(const std::vector<zero::Event>& events) {
        for (const zero::Event& event : events) {
            issue(event);
            wait_for_sent();
            if (!emit.is_live(partition_gradient_)) {
                emit.allocate(partition_gradient_);
            }
            for (const std::int32_t r : event.parameters) {
                drop_gradient(row(r));
            }
        }
    }

    zero::Layout3 layout_;
    zero::Coordinator coordinator_;
    zero::GradientBucket bucket_reducer_;
    std::int64_t owned_numel_ = 0;
    std::int32_t partition_gradient_ = -1;
    std::vector<std::int32_t> hooked_;                // nodes behind modules, of this forward
    std::vector<std::vector<std::int32_t>> pending_;  // modules that hand each on, inner ones first
};

}  // namespace

Schedule lower_zero(const LoweringInput& input, int stage) {
    Schedule out;
    out.stream_names = one_communicator;
    if (stage == 3) {
        Zero3(input, out).run();
    } else {
        Zero12(input, stage, out).run();
    }
    return out;
}

}  // namespace fsdplan
