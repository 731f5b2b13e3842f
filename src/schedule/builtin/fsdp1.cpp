#include <algorithm>
#include <array>

#include "schedule/fsdp1_construction.hpp"
#include "schedule/fsdp1_gather.hpp"
#include "schedule/fsdp1_handle.hpp"
#include "schedule/fsdp1_order.hpp"
#include "schedule/fsdp1_reduction.hpp"
#include "schedule/fsdp1_refusals.hpp"
#include "schedule/gradient_norm.hpp"
#include "schedule/optimizer_step.hpp"

// FullyShardedDataParallel: one flat parameter a unit, gathered in one piece.
// Source: torch/distributed/fsdp/_runtime_utils.py of PyTorch 2.13.
namespace fsdplan {
namespace {

using namespace fsdp1;

enum Action : std::int32_t { pre_backward_hook, frozen_hook };

class Fsdp1 final : public UnitRuntime {
public:
    Fsdp1(const LoweringInput& input, Schedule& out)
        : plan_(input.plan),
          job_(input.job),
          loop_(input, out),
          emit_(loop_.emit),
          handles_(handles_of(loop_, input.rank)),
          gathers_(loop_),
          order_(job_, emit_) {
        gradient_of_.resize(loop_.tree.tensors.size(), -1);
        for (const Handle& h : handles_) {
            for (const Handle::Member& member : h.members) {
                gradient_of_[at(member.tensor)] = member.gradient;
            }
        }
    }

    void run() { loop_.run(*this); }

    void begin() override {
        for (const std::int32_t u : construction_order(plan_, loop_.units)) {
            construct(handle(u), job_, emit_);
        }
    }

    void begin_microbatch(bool last) override { sync_gradients_ = last || !job_.no_sync; }

    void pre_forward(std::int32_t unit, std::int32_t call) override {
        Handle& h = handle(unit);
        if (unit == root && !loop_.in_backward()) {
            root_pre_forward();
        }
        if (h.exists && h.state == Handle::State::backward_pre) {
            return;  // recomputed between its own pre- and post-backward
        }
        if (!h.exists) {
            return;
        }
        emit_.host(HostWork::unit_hook, unit);
        order_.record_pre_forward(h);
        h.state = Handle::State::forward;
        if (!h.prefetched) {
            gathers_.unshard(h);
        }
        h.needs_pre_forward_unshard = false;
        emit_.after(Stream::compute, unshard_stream);
        if (job_.forward_prefetch) {
            prefetch_forward(h);
        }
        register_post_backward(h, call);
    }

    void post_forward(std::int32_t unit, std::int32_t call) override {
        Handle& h = handle(unit);
        if (h.exists && h.state == Handle::State::backward_pre) {
            return;
        }
        if (h.exists) {
            emit_.host(HostWork::unit_hook, unit);
            order_.record_post_forward(h);
            const bool keeps_views =
                job_.use_orig_params && loop_.grad_enabled() && keeps_after_forward(h.settings.strategy);
            gathers_.reshard(h, unit != root && frees_after_forward(h.settings.strategy));
            h.skipped_views = keeps_views;
            if (loop_.grad_enabled()) {
                h.needs_pre_backward_unshard = loop_.output_requires_grad(call);
                h.ran_pre_backward = false;
            }
        }
        if (loop_.grad_enabled() && loop_.output_node(call) >= 0) {
            loop_.tape.hook(loop_.output_node(call), pre_backward_hook, unit);
        }
        h.state = Handle::State::idle;
    }

    void hook(const Tape::Hook& hook) override {
        Handle& h = handle(hook.subject);
        if (hook.action == pre_backward_hook) {
            pre_backward(h);
        } else if (--h.frozen_waits == 0) {
            emit_.mark(Mark::post_backward_frozen, h.unit);
            h.state = Handle::State::backward_post;
            reshard_in_backward(h, Stream::compute);
        }
    }

    void node(const Tape::Node& node) override {
        Handle& h = handle(node.subject);
        if (node.kind == Tape::Kind::split) {
            assemble(h, emit_);
        } else {
            post_backward(h);
        }
    }

    void end_of_backward() override {
        emit_.after(Stream::compute, views_stream);  // autograd joins the streams of its leaves
        emit_.mark(Mark::final_begin);
        if (sync_gradients_) {
            emit_.after(Stream::compute, post_backward_stream);
            if (std::ranges::any_of(handles_, &Handle::hybrid)) {
                emit_.after(Stream::compute, Stream::all_reduce);
            }
            if (job_.offload) {
                emit_.block(emit_.record(Stream::compute));
            }
        }
        order_.end_of_backward();
        for (Handle& h : handles_) {
            if (!h.exists) {
                continue;
            }
            if (!h.points_to_shard || h.skipped_views) {
                gathers_.reshard(h, frees_in_backward(h));
            }
            if (sync_gradients_) {
                keep_low_precision(h, job_, emit_);
            }
            if (job_.offload && sync_gradients_) {
                emit_.release(h.shard_gradient);
                h.has_shard_gradient = false;
            }
            h.ran_pre_backward = false;
            h.needs_pre_backward_unshard = false;
            h.post_forward_index = -1;
            h.state = Handle::State::idle;
            h.prefetched = false;
            h.hook_registered = false;
            h.frozen_waits = 0;
            h.split = -1;
            h.accumulator = -1;
        }
        emit_.mark(Mark::final_end);
    }

    void clip() override {
        if (!clipped_) {
            // The first call sends a zero from pageable memory, and the host waits for it.
            emit_.copy(bytes_of(1, DType::float32).count, -1, Stream::compute, OpKind::to_device);
            emit_.block(emit_.record(Stream::compute));
            clipped_ = true;
        }
        norms_one_by_one(emit_, local_gradients());
        if (norm_ < 0) {
            norm_ = add_buffer(emit_, -1, 1, DType::float32, Category::temporary, Stream::compute);
            emit_.allocate(norm_);  // stays: each step replaces it
        }
        if (std::ranges::none_of(handles_, [](const Handle& h) { return h.exists && h.sharded(); })) {
            return;
        }
        exchange_norms(emit_, job_, DType::float32, 1);  // of all local shards together
    }

    void optimizer_step() override {
        emit_.host(HostWork::optimizer, -1);
        LocalParameters local;
        for (Handle& h : handles_) {
            if (h.ever_reduced) {
                step_over(h, local);
            }
        }
        emit_optimizer(emit_, job_, local, loop_.multiprocessors());
    }

    void zero_grad() override {
        // With use_orig_params only the original parameters forget their gradients; the flat one's goes when
        // the next forward starts.
        if (!job_.use_orig_params) {
            drop_all_gradients();
        }
        gradients_zeroed_ = true;
    }

    bool tracks(TensorIndex t) const override {
        const std::int32_t unit = loop_.unit_of(t);
        return unit >= 0 ? handles_[static_cast<std::size_t>(unit)].requires_grad
                         : loop_.tree.tensors[at(t)].requires_grad;
    }

    std::int32_t gradient_node(TensorIndex t) override {
        const std::int32_t unit = loop_.unit_of(t);
        if (unit < 0) {
            return -1;  // an ignored parameter's own .grad
        }
        Handle& h = handle(unit);
        if (h.split < 0) {
            gathers_.add_split(h);
        }
        return h.split;
    }

    void gradient_computed(TensorIndex t) override {
        const std::int32_t unit = loop_.unit_of(t);
        if (unit < 0) {
            return;
        }
        const std::int32_t gradient = gradient_of_[at(t)];
        if (!emit_.is_live(gradient)) {
            emit_.allocate(gradient);
        }
    }

private:
    static constexpr std::int32_t root = 0;

    Handle& handle(std::int32_t unit) { return handles_[static_cast<std::size_t>(unit)]; }

    static bool keeps_after_forward(Strategy strategy) {
        return strategy == Strategy::shard_grad_op || strategy == Strategy::hybrid_shard_zero2;
    }

    // Lazy initialisation, when the first forward starts.
    void initialize_all() {
        initialized_ = true;
        for (const Handle& h : handles_) {
            initialize(h, emit_);
        }
        if (job_.buffer_dtype) {
            loop_.cast_buffers(*job_.buffer_dtype);
        }
    }

    void root_pre_forward() {
        if (!initialized_) {
            initialize_all();
        }
        if (job_.forward_prefetch) {
            for (Handle& h : handles_) {
                h.needs_pre_forward_unshard = true;
                h.prefetched = false;
            }
        }
        emit_.after(unshard_stream, Stream::compute);
        emit_.after(pre_unshard_stream, Stream::compute);
        if (gradients_zeroed_) {
            drop_all_gradients();
        }
        if (job_.param_dtype) {
            loop_.user_code();  // the inputs are cast
        }
    }

    std::vector<LocalGradient> local_gradients() const {
        std::vector<LocalGradient> gradients;
        for (const Handle& h : handles_) {
            if (!h.ever_reduced) {
                continue;
            }
            if (!job_.use_orig_params) {
                gradients.push_back({.numel = h.shard_numel});
                continue;
            }
            for (const Handle::Member& member : h.members) {
                if (member.trainable && member.local_numel > 0) {
                    gradients.push_back({.numel = member.local_numel});
                }
            }
        }
        return gradients;
    }

    void drop_all_gradients() {
        for (Handle& h : handles_) {
            drop_gradients(h, emit_);
        }
        gradients_zeroed_ = false;
    }

    bool frees_in_backward(const Handle& h) const {
        return h.sharded() && (sync_gradients_ || frees_after_forward(h.settings.strategy));
    }

    void reshard_in_backward(Handle& h, Stream current) {
        gathers_.reshard(h, frees_in_backward(h), current);
        if (job_.backward_prefetch == BackwardPrefetch::post) {
            prefetch_backward(h);
        }
    }

    void prefetch_forward(const Handle& h) {
        const std::int32_t target = order_.after_in_forward(h);
        if (target >= 0 && handle(target).needs_pre_forward_unshard && !handle(target).prefetched) {
            gathers_.prefetch(handle(target), Handle::State::forward);
        }
    }

    void prefetch_backward(const Handle& h) {
        const std::int32_t target = order_.after_in_backward(h);
        if (target >= 0 && handle(target).needs_pre_backward_unshard && !handle(target).prefetched) {
            gathers_.prefetch(handle(target), Handle::State::backward_pre);
        }
    }

    // A frozen unit has no gradient whose arrival could reshard it: it goes when the gradients of its inputs
    // are there.
    void register_post_backward(Handle& h, std::int32_t call) {
        if (!loop_.grad_enabled() || h.hook_registered) {
            return;
        }
        h.hook_registered = true;
        if (h.requires_grad) {
            return;
        }
        const std::vector<std::int32_t> inputs = loop_.input_nodes(call);
        h.frozen_waits = static_cast<std::int32_t>(inputs.size());
        for (const std::int32_t node : inputs) {
            loop_.tape.hook(node, frozen_hook, h.unit);
        }
    }

    void pre_backward(Handle& h) {
        if (!h.exists || h.ran_pre_backward) {
            return;
        }
        emit_.mark(Mark::pre_backward, h.unit);
        emit_.host(HostWork::unit_hook, h.unit);
        h.state = Handle::State::backward_pre;
        if (h.needs_pre_backward_unshard) {
            if (!h.prefetched) {
                gathers_.unshard(h);
            }
            emit_.after(Stream::compute, unshard_stream);
        }
        h.needs_pre_backward_unshard = false;
        if (job_.backward_prefetch == BackwardPrefetch::pre) {
            prefetch_backward(h);
        }
        h.ran_pre_backward = true;
    }

    void post_backward(Handle& h) {
        accumulate(h, emit_);
        emit_.mark(Mark::post_backward, h.unit, h.has_gradient ? 1 : 0);
        emit_.host(HostWork::unit_hook, h.unit);
        h.state = Handle::State::backward_post;
        if (!h.has_gradient) {
            return;
        }
        reshard_in_backward(h, views_stream);
        if (sync_gradients_) {
            reduce(h, job_, emit_);
        }
    }

    void step_over(Handle& h, LocalParameters& local) {
        const auto add = [&](std::int64_t numel, bool& has_states) {
            const LocalParameter parameter{.numel = numel, .dtype = h.settings.orig};
            local.add(parameter);
            if (!has_states && numel > 0) {
                create_states(emit_, job_, parameter);
                has_states = true;
            }
        };
        if (!job_.use_orig_params) {
            add(h.shard_numel, h.has_flat_states);
            return;
        }
        for (Handle::Member& member : h.members) {
            if (member.trainable) {
                add(member.local_numel, member.has_states);
            }
        }
    }

    const WrapPlan& plan_;
    const TrainingJob& job_;
    TrainingLoop loop_;
    Emitter& emit_;
    std::vector<Handle> handles_;
    Gathers gathers_;
    ExecutionOrder order_;
    std::vector<std::int32_t> gradient_of_;  // buffer of each parameter's part of its unit's gradient
    std::int32_t norm_ = -1;
    bool clipped_ = false;
    bool initialized_ = false;
    bool sync_gradients_ = true;
    bool gradients_zeroed_ = false;
};

Schedule lower_fsdp1(const LoweringInput& input) {
    Schedule out;
    out.stream_names = {"compute", "pre_unshard", "unshard", "post_backward", "all_reduce", "transfer"};
    Fsdp1(input, out).run();
    return out;
}

constexpr std::array strategies{Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard,
                                Strategy::hybrid_shard, Strategy::hybrid_shard_zero2};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo fsdp1;
constinit const RuntimeInfo fsdp1{
    .name = "fsdp1",
    .help = "torch.distributed.fsdp.FullyShardedDataParallel",
    .wraps_by_policy = true,
    .has_units = true,
    .strategies = strategies,
    .lower = lower_fsdp1,
    .parameters = ParameterForm::flat,
    .refusals = fsdp1::refusals,
    .tracks_whole_units = true,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
