#include "report/wrap_plan_json.hpp"

#include <algorithm>

#include "model/named_parameters.hpp"
#include "schedule/reshard_ranks.hpp"

namespace fsdplan {
namespace {

void write_dtype(JsonWriter& out, std::string_view key, const std::optional<DType>& dtype) {
    out.key(key);
    if (dtype) {
        out.value(name(*dtype));
    } else {
        out.null();
    }
}

/// 0 for False, 1 for True, else a number of ranks: what fully_shard ends up with where nothing is said.
std::int64_t reshard_of(const Unit& unit, const TrainingJob& job) {
    if (const std::optional<std::int64_t> own = own_reshard(unit)) {
        return *own;
    }
    if (job.reshard_after_forward) {
        return *job.reshard_after_forward;
    }
    return frees_after_forward(job.strategy) && at(unit.module) != 0 ? 1 : 0;
}

void write_units(JsonWriter& out, const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job) {
    const bool calls = !runtime(job.runtime).wraps_by_policy;
    std::vector<std::int32_t> order = plan.construction_order;
    if (order.size() != plan.units.size()) {
        order.clear();
        for (std::size_t u = 0; u < plan.units.size(); ++u) {
            order.push_back(static_cast<std::int32_t>(u));
        }
    }
    out.key("units").begin_array();
    for (const std::int32_t u : order) {
        const Unit& unit = plan.units[static_cast<std::size_t>(u)];
        out.begin_object();
        out.key("modules").begin_array();
        if (unit.modules.size() > 1) {
            for (const ModuleIndex m : unit.modules) {
                out.value(tree.path(m));
            }
        } else {
            out.value(unit.path);
        }
        out.end_array();
        out.member("numel", unit.numel);
        if (calls) {
            const std::int64_t ranks = reshard_of(unit, job);
            out.key("reshard_after_forward");
            if (ranks > 1) {
                out.value(ranks);
            } else {
                out.value(ranks == 1);
            }
        }
        out.end_object();
    }
    out.end_array();
}

void write_checkpointing(JsonWriter& out, const ModuleTree& tree, const ActivationCheckpointing& chosen) {
    using Placement = ActivationCheckpointing::Placement;
    const bool listed = chosen.mode == ActivationCheckpointing::Mode::none && !chosen.modules.empty();
    out.key("activation_checkpointing").begin_object();
    out.member("mode", listed ? std::string("modules") : name(chosen));
    out.key("modules").begin_array();
    for (const ModuleIndex m : chosen.regions(tree)) {
        out.value(tree.path(m));
    }
    out.end_array();
    const bool by_model = chosen.by_model(tree) || chosen.placement == Placement::forward;
    out.member("placement", by_model                                 ? "forward"
                            : chosen.placement == Placement::outside ? "outside"
                                                                     : "inside");
    out.end_object();
}

void write_lists(JsonWriter& out, std::string_view key, const Fsdp2Options::PrefetchLists& lists) {
    out.key(key).begin_array();
    for (const auto& [unit, targets] : lists) {
        out.begin_array().value(unit).begin_array();
        for (const std::string& target : targets) {
            out.value(target);
        }
        out.end_array().end_array();
    }
    out.end_array();
}

void write_prefetch(JsonWriter& out, const TrainingJob& job) {
    out.key("prefetch").begin_object();
    if (runtime(job.runtime).wraps_by_policy) {
        out.member("backward", name(job.backward_prefetch));
        out.member("forward", job.forward_prefetch);
        out.member("limit_all_gathers", job.limit_all_gathers);
    } else {
        write_lists(out, "forward", job.fsdp2.forward_prefetch);
        write_lists(out, "backward", job.fsdp2.backward_prefetch);
    }
    out.end_object();
}

void write_parameters(JsonWriter& out, const ModuleTree& tree) {
    out.key("parameters").begin_array();
    for (const NamedParameter& parameter : named_parameters(tree)) {
        const Tensor& tensor = tree.tensors[at(parameter.tensor)];
        out.begin_object(true);
        out.member("name", parameter.name);
        out.key("shape").begin_array(true);
        for (const std::int64_t size : tensor.shape) {
            out.value(size);
        }
        out.end_array();
        out.member("dtype", name(tensor.dtype));
        out.member("requires_grad", tensor.requires_grad);
        out.end_object();
    }
    out.end_array();
}

}  // namespace

void write_wrap_plan(JsonWriter& out, const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job) {
    out.key("wrap_plan").begin_object();
    out.member("runtime", job.runtime).member("torch", job.torch);
    out.key("mesh").begin_object();
    out.member("replicate", job.mesh.replicate).member("shard", job.mesh.shard).end_object();
    out.member("strategy", name(job.strategy));
    write_dtype(out, "param_dtype", job.param_dtype);
    write_dtype(out, "reduce_dtype", job.reduce_dtype);
    write_dtype(out, "buffer_dtype", job.buffer_dtype);
    out.member("offload", job.offload);
    out.member("batch", job.batch).member("sequence", job.sequence);
    out.member("accumulate", job.accumulate).member("no_sync", job.no_sync);
    out.member("optimizer", name(job.optimizer)).member("loss", name(job.loss));
    out.member("attention", name(job.attention));
    write_units(out, tree, plan, job);
    write_checkpointing(out, tree, job.activation_checkpointing);
    write_prefetch(out, job);
    if (runtime(job.runtime).wraps_by_policy) {
        out.member("use_orig_params", job.use_orig_params);
    }
    write_parameters(out, tree);
    out.end_object();
}

}  // namespace fsdplan
