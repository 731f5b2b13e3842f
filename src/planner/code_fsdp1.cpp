#include <algorithm>

#include "planner/code_checkpoints.hpp"
#include "planner/code_runtimes.hpp"

namespace fsdplan {
namespace {

// Names tell apart what classes and sizes do not: modules are asked for by identity.
bool name_units(const UnitsInCode& units, std::string& imports, std::string& before, std::string& policy) {
    const std::vector<std::string> lines = name_lines(units.inner);
    imports += "from torch.distributed.fsdp.wrap import CustomPolicy\n";
    before = "units = {model.get_submodule(name) for name in " + tuple_of(lines) + "}\n";
    policy = "CustomPolicy(lambda module: module in units)";
    return lines.size() <= most_lines;
}

// One strategy for all, which says when parameters are freed too.
bool can_say(const UnitsInCode& units, const TrainingJob& job) {
    const auto by_strategy =
        frees_after_forward(job.strategy) ? std::nullopt : std::optional<std::int64_t>(0);
    return units.root_reshard == by_strategy && std::ranges::all_of(units.calls, [&](const UnitCall& call) {
               return call.modules.size() == 1 && call.own_reshard == by_strategy;
           });
}

std::string prefetch_arguments(const TrainingJob& job) {
    std::string out;
    if (job.backward_prefetch != BackwardPrefetch::pre) {
        const bool none = job.backward_prefetch == BackwardPrefetch::none;
        out += "    backward_prefetch=" +
               (none ? "None" : "BackwardPrefetch." + std::string(name(job.backward_prefetch))) + ",\n";
    }
    out += job.forward_prefetch ? "    forward_prefetch=True,\n" : "";
    out += job.limit_all_gathers ? "" : "    limit_all_gathers=False,\n";
    return out;
}

}  // namespace

std::string fsdp1_code(const ModuleTree& tree, const TrainingJob& job, const UnitsInCode& units) {
    std::string imports = "import torch\n";
    std::string before;
    std::string policy;
    if (!can_say(units, job)) {
        return "";
    }
    if (!units.classes.empty()) {
        std::string set;
        for (const std::string& c : units.classes) {
            const Import import = import_of(c);
            imports += import.line;
            set += (set.empty() ? "" : ", ") + import.word;
        }
        policy = "ModuleWrapPolicy({" + set + "})";
        imports += "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n";
    } else if (units.threshold) {
        policy =
            "partial(size_based_auto_wrap_policy, min_num_params=" + with_underscores(*units.threshold) + ")";
        imports = "from functools import partial\n" + imports;
        imports += "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy\n";
    } else if (units.inner.empty()) {
        policy = "None";
    } else if (!name_units(units, imports, before, policy)) {
        return "";
    }
    if (is_hybrid(job.strategy)) {
        imports += "from torch.distributed.device_mesh import init_device_mesh\n";
    }
    const std::optional<CheckpointCode> checkpoints = checkpoint_code(tree, job, true, units.inner);
    if (!checkpoints) {
        return "";
    }
    const std::string precision = precision_arguments(job, true);
    const std::string prefetch = prefetch_arguments(job);
    imports += "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy" +
               std::string(precision.empty() ? "" : ", MixedPrecision") +
               (prefetch.find("BackwardPrefetch.") == std::string::npos ? "" : ", BackwardPrefetch") +
               (job.offload ? ", CPUOffload" : "") + "\n";
    std::string code = with_imports(imports, checkpoints->imports) + "\n" + checkpoints->definitions +
                       mesh_lines(job) + before + checkpoints->before + "model = FSDP(\n    model,\n";
    code += "    auto_wrap_policy=" + policy + ",\n";
    code += "    sharding_strategy=ShardingStrategy." + std::string(name(job.strategy)) + ",\n";
    if (!precision.empty()) {
        code += "    mixed_precision=MixedPrecision(" + precision + "),\n";
    }
    if (job.use_orig_params) {
        code += "    use_orig_params=True,\n";
    }
    code += prefetch;
    code += job.offload ? "    cpu_offload=CPUOffload(offload_params=True),\n" : "";
    if (is_hybrid(job.strategy)) {
        code += "    device_mesh=mesh,\n";
    }
    code += "    device_id=torch.cuda.current_device(),\n)\n";
    return code + checkpoints->after;
}

}  // namespace fsdplan
