#include <algorithm>
#include <array>
#include <utility>

#include "schedule/fsdp2_gather.hpp"
#include "schedule/fsdp2_gradient.hpp"
#include "schedule/fsdp2_group.hpp"
#include "schedule/fsdp2_reduction.hpp"
#include "schedule/fsdp2_refusals.hpp"
#include "schedule/gradient_norm.hpp"
#include "schedule/optimizer_step.hpp"

// fully_shard: parameters are sharded one by one and travel together, a unit at a time.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_state.py and _fsdp_param_group.py of PyTorch 2.13.
namespace fsdplan {
namespace {

using namespace fsdp2;

constexpr std::int32_t pre_backward_hook = 0;

/// The order of Module._apply: children in front of what is around them.
std::vector<ModuleIndex> children_first(const ModuleTree& tree) {
    std::vector<ModuleIndex> out;
    std::vector<ModuleIndex> around;
    for (std::size_t row = 0; row < tree.size(); ++row) {
        while (!around.empty() && static_cast<std::int32_t>(at(around.back())) != tree.parent[row]) {
            out.push_back(around.back());
            around.pop_back();
        }
        around.push_back(static_cast<ModuleIndex>(row));
    }
    out.insert(out.end(), around.rbegin(), around.rend());
    return out;
}

class Fsdp2 final : public UnitRuntime {
public:
    Fsdp2(const LoweringInput& input, Schedule& out)
        : job_(input.job),
          torch_(torch_behaviour(input.job.torch)),
          loop_(input, out),
          emit_(loop_.emit),
          // The first rank of a shard group owns most.
          groups_(groups_of(loop_, input.rank.value_or(0) % input.job.mesh.shard)),
          gathers_(job_, emit_),
          reductions_(job_, emit_),
          place_(loop_.tree.tensors.size(), -1) {
        for (const Group& g : groups_) {
            for (std::size_t i = 0; i < g.members.size(); ++i) {
                place_[at(g.members[i].tensor)] = static_cast<std::int32_t>(i);
            }
        }
    }

    void run() { loop_.run(*this); }

    // Parameters come from the meta device, those of a module's children in front of its own. A tied one
    // comes anew in each of its slots, whereupon the one before is gone.
    void begin() override {
        std::vector<const Member*> member_of(place_.size(), nullptr);
        for (const Group& g : groups_) {
            for (const Member& m : g.members) {
                member_of[at(m.tensor)] = &m;
            }
        }
        std::vector<int> left(place_.size(), 0);  // slots
        for (const TensorIndex t : loop_.tree.parameter) {
            ++left[at(t)];
        }
        std::vector<std::int32_t> before(place_.size(), -1);
        for (const ModuleIndex module : children_first(loop_.tree)) {
            for (const TensorIndex t : loop_.tree.parameters(module)) {
                if (const Member* m = member_of[at(t)]) {
                    const bool last = --left[at(t)] == 0;
                    const std::int32_t here = last ? m->shard : emit_.buffer(emit_.at(m->shard));
                    emit_.allocate(here);
                    if (before[at(t)] >= 0) {
                        emit_.release(before[at(t)]);
                    }
                    before[at(t)] = here;
                }
            }
        }
    }

    void begin_microbatch(bool last) override {
        reduce_gradients_ = last || !job_.no_sync;
        reshard_after_backward_ = last || !(job_.no_sync && job_.fsdp2.keep_unsharded);
        last_backward_ = last || !(job_.no_sync && job_.fsdp2.not_last_backward);
        all_reduce_gradients_ = last || !job_.fsdp2.no_all_reduce;
    }

    void pre_forward(std::int32_t unit, std::int32_t call) override {
        Group& g = group(unit);
        if (g.state_training == Group::Training::pre_backward) {
            if (g.exists && g.sharded != Group::Sharded::unsharded) {
                gathers_.unshard(g, false);
                gathers_.wait_for_unshard(g);
            }
            return;
        }
        const bool first_in_pass = g.state_training != Group::Training::forward;
        g.state_training = Group::Training::forward;
        if (first_in_pass && forward_root_ < 0) {
            forward_root_ = unit;
            if (job_.param_dtype) {
                loop_.user_code();  // the inputs are cast
            }
            emit_.after(copy_in_stream, Stream::compute);
            emit_.after(gather_stream, Stream::compute);
        }
        if (g.exists) {
            emit_.host(HostWork::unit_hook, unit);
            const bool entering = g.training != Group::Training::forward;
            g.training = Group::Training::forward;
            gathers_.unshard(g, job_.fsdp2.unshard_async_op);
            gathers_.wait_for_unshard(g);
            if (entering && loop_.grad_enabled() && loop_.has_grad_inputs(call)) {
                loop_.set_inputs_node(call, loop_.tape.add(Tape::Kind::inputs, unit));
            }
        }
        if (first_in_pass) {
            for (const std::int32_t target : g.forward_prefetch) {
                gathers_.prefetch(group(target), Group::Training::forward);
            }
        }
    }

    void post_forward(std::int32_t unit, std::int32_t call) override {
        Group& g = group(unit);
        if (g.state_training == Group::Training::pre_backward) {
            return;
        }
        if (g.exists) {
            emit_.host(HostWork::unit_hook, unit);
            if (!loop_.in_backward()) {
                gathers_.reshard(g);
                g.post_forward_indices.push_back(static_cast<std::int32_t>(post_forward_order_.size()));
                post_forward_order_.push_back(unit);
            }
            g.training = Group::Training::idle;
        }
        if (loop_.grad_enabled() && loop_.output_node(call) >= 0) {
            loop_.tape.hook(loop_.output_node(call), pre_backward_hook, unit);
        }
        g.state_training = Group::Training::idle;
        if (forward_root_ == unit) {
            gathers_.end_forward();
            forward_root_ = -1;
        }
    }

    void hook(const Tape::Hook& hook) override {
        Group& g = group(hook.subject);
        g.state_training = Group::Training::pre_backward;
        final_callback_ = true;
        if (g.exists) {
            pre_backward(g);
        }
        for (const std::int32_t target : g.backward_prefetch) {
            gathers_.prefetch(group(target), Group::Training::pre_backward);
        }
    }

    void node(const Tape::Node& node) override {
        if (node.kind == Tape::Kind::inputs) {
            post_backward(group(node.subject));
            return;
        }
        const TensorIndex t{node.subject};
        Group& g = group(loop_.unit_of(t));
        accumulate(member(g, t), g, reduce_gradients_, torch_, emit_);
    }

    void end_of_backward() override {
        if (!final_callback_) {
            return;
        }
        emit_.mark(Mark::final_begin);
        forward_root_ = -1;
        for (Group& g : groups_) {
            if (g.exists) {
                if (g.training != Group::Training::post_backward) {
                    post_backward(g);
                }
                g.training = Group::Training::idle;
            }
            g.state_training = Group::Training::idle;
            if (last_backward_ && g.exists) {
                reductions_.finalize(g);
                gathers_.drop_pending(g);
                g.post_forward_indices.clear();
            }
        }
        if (last_backward_) {
            post_forward_order_.clear();
            reductions_.release_inputs();
            gathers_.release_stray();
        }
        final_callback_ = false;
        for (Group& g : groups_) {
            for (Member& m : g.members) {
                m.accumulator = -1;
            }
        }
        emit_.mark(Mark::final_end);
    }

    void clip() override {
        std::vector<LocalGradient> gradients;
        for (const Group& g : groups_) {
            for (const Member& m : g.members) {
                if (m.trainable && g.has_sharded_gradient && m.has_sharded_gradient) {
                    gradients.push_back({.numel = m.owned_numel, .dtype = m.orig});
                }
            }
        }
        if (gradients.empty()) {
            return;
        }
        if (!job_.offload) {
            norms_by_foreach(emit_, gradients, true);
        }
        exchange_norms(emit_, job_, gradients.back().dtype, static_cast<std::int64_t>(gradients.size()));
    }

    void optimizer_step() override {
        emit_.host(HostWork::optimizer, -1);
        LocalParameters local;
        std::vector<char> stepped(place_.size(), 0);
        for (const TensorIndex t : loop_.tree.parameter) {  // the order of model.parameters()
            Member* m = member(t);
            if (m == nullptr || !m->has_sharded_gradient || std::exchange(stepped[at(t)], 1) != 0) {
                continue;
            }
            const LocalParameter parameter{.numel = m->owned_numel,
                                           .dtype = m->orig,
                                           .shape = loop_.tree.tensors[at(t)].shape,
                                           .ranks = job_.mesh.shard};
            if (!m->has_states) {
                create_states(emit_, job_, parameter);
                m->has_states = true;
            }
            local.add(parameter);
        }
        emit_optimizer(emit_, job_, local, loop_.multiprocessors());
    }

    void zero_grad() override {
        // The parameters of a group share one storage, which goes with the last of them.
        std::vector<Group*> by_last;
        for (const TensorIndex t : loop_.tree.parameter) {
            if (Member* m = member(t)) {
                m->has_sharded_gradient = false;
                Group& g = group(loop_.unit_of(t));
                std::erase(by_last, &g);
                by_last.push_back(&g);
            }
        }
        for (Group* g : by_last) {
            emit_.release(g->sharded_gradient);
            g->has_sharded_gradient = false;
        }
    }

    bool tracks(TensorIndex t) const override { return loop_.tree.tensors[at(t)].requires_grad; }

    std::int32_t gradient_node(TensorIndex t) override {
        Member* m = member(t);
        if (m == nullptr) {
            return -1;  // an ignored parameter's own .grad
        }
        if (m->accumulator < 0) {
            m->accumulator = loop_.tape.add(Tape::Kind::accumulate, static_cast<std::int32_t>(t));
        }
        return m->accumulator;
    }

    void gradient_computed(TensorIndex t) override {
        if (const Member* m = member(t)) {
            compute_gradient(*m, emit_);
        }
    }

private:
    Group& group(std::int32_t unit) { return groups_[static_cast<std::size_t>(unit)]; }

    Member* member(TensorIndex t) {
        const std::int32_t unit = loop_.unit_of(t);
        if (unit < 0) {
            return nullptr;
        }
        return &member(group(unit), t);
    }
    Member& member(Group& g, TensorIndex t) const {
        return g.members[static_cast<std::size_t>(place_[at(t)])];
    }

    void pre_backward(Group& g) {
        if (g.training == Group::Training::pre_backward) {
            return;
        }
        emit_.mark(Mark::pre_backward, g.unit);
        emit_.host(HostWork::unit_hook, g.unit);
        g.training = Group::Training::pre_backward;
        gathers_.unshard(g, job_.fsdp2.unshard_async_op);
        gathers_.wait_for_unshard(g);
        if (g.backward_prefetch.empty() && !g.post_forward_indices.empty()) {
            const std::int32_t index = g.post_forward_indices.back();
            g.post_forward_indices.pop_back();
            if (index > 0) {
                const std::int32_t before = post_forward_order_[static_cast<std::size_t>(index) - 1];
                gathers_.prefetch(group(before), Group::Training::pre_backward);
            }
        }
    }

    void post_backward(Group& g) {
        emit_.mark(Mark::post_backward, g.unit, count_gradients(g));
        emit_.host(HostWork::unit_hook, g.unit);
        g.training = Group::Training::post_backward;
        add_to_accumulated(g, emit_);
        if (reduce_gradients_) {
            reductions_.collect(g);
        }
        if (reshard_after_backward_) {
            gathers_.reshard(g);
        }
        if (reduce_gradients_) {
            reductions_.reduce(g, all_reduce_gradients_);
        } else {
            keep_unreduced(g, emit_);
        }
        emit_.mark(Mark::post_backward_end, g.unit);
        reductions_.release_last_gradient();
    }

    const TrainingJob& job_;
    const TorchBehaviour& torch_;
    TrainingLoop loop_;
    Emitter& emit_;
    std::vector<Group> groups_;
    Gathers gathers_;
    Reductions reductions_;
    std::vector<std::int32_t> place_;  // of each tensor among the members of its group
    std::vector<std::int32_t> post_forward_order_;
    std::int32_t forward_root_ = -1;
    bool final_callback_ = false;
    bool reduce_gradients_ = true;
    bool reshard_after_backward_ = true;
    bool last_backward_ = true;
    bool all_reduce_gradients_ = true;
};

Schedule lower_fsdp2(const LoweringInput& input) {
    Schedule out;
    out.stream_names = {"compute",        "all_gather_copy_in", "all_gather",
                        "reduce_scatter", "all_reduce",         "transfer"};
    Fsdp2(input, out).run();
    return out;
}

constexpr std::array strategies{Strategy::full_shard, Strategy::shard_grad_op, Strategy::hybrid_shard,
                                Strategy::hybrid_shard_zero2};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo fsdp2;
constinit const RuntimeInfo fsdp2{
    .name = "fsdp2",
    .help = "torch.distributed.fsdp.fully_shard",
    .wraps_by_policy = false,
    .has_units = true,
    .strategies = strategies,
    .lower = lower_fsdp2,
    .parameters = ParameterForm::rows,
    .refusals = fsdp2::refusals,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
