#include "frontend/compare_plans.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <vector>

#include "fsdplan/schedule.hpp"
#include "schedule/reshard_ranks.hpp"

namespace fsdplan::frontend {
namespace {

/// Paths of a unit's modules, and how it is freed after forward.
using Units = std::map<std::vector<ModuleIndex>, std::int64_t>;

Units units_of(const WrapPlan& plan, const TrainingJob& job) {
    Units out;
    for (const Unit& unit : plan.units) {
        if (unit.numel > 0) {  // others hold nothing that could be gathered
            std::vector<ModuleIndex> modules = unit.modules;
            std::ranges::sort(modules);
            out[modules] = job.runtime == "fsdp2" ? reshard_of(unit, job) : 0;
        }
    }
    return out;
}

std::string shown(const ModuleTree& tree, const std::vector<ModuleIndex>& modules) {
    std::string out;
    for (const ModuleIndex m : modules) {
        out += (out.empty() ? "" : " with ") + (at(m) == 0 ? std::string("the root") : tree.path(m));
    }
    return out;
}

std::string shown(std::optional<DType> dtype) {
    return dtype ? std::string(name(*dtype)) : "the stored dtype";
}

/// What is compared, one thing after the other; the first difference counts.
class Comparison {
public:
    Comparison(const PlanToWrite& plan, const FrontendPlan& settings) : plan_(plan), settings_(settings) {}

    std::string run() {
        const TrainingJob& have = settings_.job;
        const TrainingJob& want = plan_.job;
        same("the runtime", have.runtime, want.runtime);
        work(have, want);
        precision(have, want);
        same("offloading", have.offload, want.offload);
        mesh(have, want);
        if (difference_.empty()) {
            runtime_options(have, want);
        }
        if (difference_.empty() && runtime(want.runtime).has_units) {
            units(have, want);
        }
        checkpointing(have.activation_checkpointing, want.activation_checkpointing);
        return difference_;
    }

private:
    template <typename Value>
    void same(std::string_view what, const Value& have, const Value& want) {
        if (difference_.empty() && !(have == want)) {
            difference_ = fmt::format("{} would be {} and not {}", what, have, want);
        }
    }

    void work(const TrainingJob& have, const TrainingJob& want) {
        same("the batch", have.batch, want.batch);
        same("the sequence", have.sequence, want.sequence);
        same("the number of micro-batches", have.accumulate, want.accumulate);
        if (want.accumulate > 1) {
            same("no_sync", have.no_sync, want.no_sync);
        }
        same("the optimizer", name(have.optimizer), name(want.optimizer));
        same("the norm that gradients are clipped to", have.clip_norm.value_or(0),
             want.clip_norm.value_or(0));
    }

    void precision(const TrainingJob& have, const TrainingJob& want) {
        same("the compute dtype", shown(have.param_dtype), shown(want.param_dtype));
        same("the dtype of reductions", shown(reduction_dtype(have)), shown(reduction_dtype(want)));
        const auto is_real = [&](TensorIndex t) {
            return is_floating_point(plan_.tree.tensors[at(t)].dtype);
        };
        if (std::ranges::any_of(plan_.tree.buffer, is_real)) {
            same("the dtype of buffers", shown(have.buffer_dtype), shown(want.buffer_dtype));
        }
        for (const Tensor& tensor : plan_.tree.tensors) {
            if (settings_.trainable_dtype && tensor.requires_grad && is_floating_point(tensor.dtype)) {
                same("the dtype of stored parameters", name(*settings_.trainable_dtype), name(tensor.dtype));
            }
        }
    }

    void mesh(const TrainingJob& have, const TrainingJob& want) {
        if (have.mesh.ranks() > 1) {
            same("the number of replicas", have.mesh.replicate, want.mesh.replicate);
            same("the number of shards", have.mesh.shard, want.mesh.shard);
        } else if (want.mesh.replicate > 1 && !is_hybrid(want.strategy) && want.mesh.shard > 1) {
            same("the number of replicas", std::int64_t{1}, want.mesh.replicate);
        }
    }

    void runtime_options(const TrainingJob& have, const TrainingJob& want) {
        if (want.runtime == "fsdp1") {
            same("the strategy", name(have.strategy), name(want.strategy));
            same("use_orig_params", have.use_orig_params, want.use_orig_params);
            same("backward_prefetch", name(have.backward_prefetch), name(want.backward_prefetch));
            same("forward_prefetch", have.forward_prefetch, want.forward_prefetch);
            same("limit_all_gathers", have.limit_all_gathers, want.limit_all_gathers);
        } else if (want.runtime == "fsdp2" &&
                   (have.fsdp2.forward_prefetch != want.fsdp2.forward_prefetch ||
                    have.fsdp2.backward_prefetch != want.fsdp2.backward_prefetch)) {
            difference_ = "the units would be prefetched otherwise";
        } else if (!runtime(want.runtime).has_units && want.runtime != "ddp" && have.zero != want.zero) {
            difference_ = "ZeRO's sizes would be others";
        }
    }

    void units(const TrainingJob& have, const TrainingJob& want) {
        const Units made = units_of(wrap(plan_.tree, settings_.policy, settings_.wrap), have);
        const Units wanted = units_of(plan_.plan, want);
        for (const auto& [modules, reshard] : wanted) {
            const auto found = made.find(modules);
            if (found == made.end()) {
                difference_ = shown(plan_.tree, modules) + " would be no unit";
                return;
            }
            if (found->second != reshard) {
                difference_ = fmt::format("reshard_after_forward of {} would be {} and not {}",
                                          shown(plan_.tree, modules), found->second, reshard);
                return;
            }
        }
        for (const auto& [modules, reshard] : made) {
            if (!wanted.contains(modules)) {
                difference_ = shown(plan_.tree, modules) + " would be a unit";
                return;
            }
        }
    }

    void checkpointing(const ActivationCheckpointing& have, const ActivationCheckpointing& want) {
        if (!difference_.empty()) {
            return;
        }
        const std::vector<ModuleIndex> wanted = want.regions(plan_.tree);
        const bool same_kind = (have.mode == ActivationCheckpointing::Mode::selective) ==
                               (want.mode == ActivationCheckpointing::Mode::selective);
        if (!same_kind || have.regions(plan_.tree) != wanted ||
            (!wanted.empty() && have.placement != want.placement)) {
            difference_ = "activation checkpointing would be " + name(have) + " and not " + name(want);
            if (have.placement != want.placement) {
                difference_ += ", or on the other side of the units";
            }
        }
    }

    const PlanToWrite& plan_;
    const FrontendPlan& settings_;
    std::string difference_;
};

}  // namespace

std::int64_t reshard_of(const Unit& unit, const TrainingJob& job) {
    const std::optional<std::int64_t> own = own_reshard(unit);
    const bool root = at(unit.module) == 0;
    return own.value_or(
        job.reshard_after_forward.value_or(root || !frees_after_forward(job.strategy) ? 0 : 1));
}

std::optional<DType> reduction_dtype(const TrainingJob& job) {
    const bool of_parameters = job.runtime == "fsdp2" && torch_behaviour(job.torch).reduces_in_original_dtype;
    return job.reduce_dtype || of_parameters ? job.reduce_dtype : job.param_dtype;
}

bool same_units(const WrapPlan& a, const TrainingJob& job_of_a, const WrapPlan& b,
                const TrainingJob& job_of_b) {
    return units_of(a, job_of_a) == units_of(b, job_of_b);
}

std::string first_difference(const PlanToWrite& plan, const FrontendPlan& settings) {
    return Comparison(plan, settings).run();
}

}  // namespace fsdplan::frontend
