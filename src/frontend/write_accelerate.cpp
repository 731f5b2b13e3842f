#include <fmt/core.h>

#include <algorithm>

#include "frontend/compare_plans.hpp"
#include "frontend/writers.hpp"
#include "fsdplan/schedule.hpp"

// A file of `accelerate config`.
namespace fsdplan::frontend {
namespace {

const char* shown(bool value) {
    return value ? "true" : "false";
}

/// Full names of the classes whose instances are units of one module.
std::vector<std::string> unit_classes(const PlanToWrite& plan) {
    const ModelHints hints = model_hints(plan.model, plan.tree);
    std::vector<std::string> out;
    for (const Unit& unit : plan.plan.units) {
        const std::string& name = plan.tree.class_info(unit.module).name;
        const bool by_accelerate = plan.job.runtime == "fsdp2" && unit.path == hints.input_embeddings;
        if (at(unit.module) != 0 && unit.modules.size() == 1 && !by_accelerate &&
            std::ranges::find(out, name) == out.end()) {
            out.push_back(name);
        }
    }
    return out;
}

/// A threshold that draws the plan's units, where classes do not.
std::optional<std::int64_t> threshold(const PlanToWrite& plan, const std::vector<std::string>& classes) {
    const auto drawn_by = [&](PolicySpec::Member member) {
        PolicySpec spec;
        spec.kind = PolicySpec::Kind::recursive;
        spec.members.push_back(std::move(member));
        return spec;
    };
    const WrapOptions options = wrap_options(plan.job);
    const auto same = [&](const WrapPlan& drawn) { return same_units(drawn, plan.job, plan.plan, plan.job); };
    if (plan.job.runtime != "fsdp1" ||
        same(wrap(plan.tree, drawn_by({.name = "transformer", .classes = classes}), options))) {
        return std::nullopt;
    }
    for (const ThresholdInterval& interval : thresholds(plan.tree, drawn_by({.name = "size"}), options)) {
        if (interval.high.value_or(1) > 0 && same(interval.plan)) {
            return std::max<std::int64_t>(interval.low, 1);
        }
    }
    return std::nullopt;
}

std::string policy_lines(const PlanToWrite& plan) {
    const std::vector<std::string> classes = unit_classes(plan);
    if (classes.empty()) {
        return "  fsdp_auto_wrap_policy: NO_WRAP\n";
    }
    if (const auto min_num_params = threshold(plan, classes)) {
        return fmt::format("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: {}\n",
                           *min_num_params);
    }
    std::string names;
    for (const std::string& name : classes) {
        names += (names.empty() ? "" : ",") + std::string(short_name(name));
    }
    return "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_transformer_layer_cls_to_wrap: " + names +
           "\n";
}

std::string_view mixed_precision(const PlanToWrite& plan) {
    return !plan.job.param_dtype                     ? "\"no\""
           : *plan.job.param_dtype == DType::float16 ? "fp16"
           : *plan.job.param_dtype == DType::float32 ? "fp32"
                                                     : "bf16";
}

std::string version_1(const TrainingJob& job) {
    std::string strategy(name(job.strategy));
    strategy.erase(0, strategy.find_first_not_of('_'));
    const std::string_view prefetch =
        job.backward_prefetch == BackwardPrefetch::none ? "NO_PREFETCH" : name(job.backward_prefetch);
    return fmt::format(
        "  fsdp_sharding_strategy: {}\n  fsdp_use_orig_params: {}\n  fsdp_backward_prefetch: {}\n"
        "  fsdp_forward_prefetch: {}\n  fsdp_sync_module_states: true\n",
        strategy, shown(job.use_orig_params), prefetch, shown(job.forward_prefetch));
}

std::string version_2(const PlanToWrite& plan) {
    // Of the units that are freed as configured: the head's and the root's own are not.
    const auto configured = std::ranges::find_if(
        plan.plan.units, [](const Unit& unit) { return at(unit.module) != 0 && unit.modules.size() == 1; });
    const bool frees = configured == plan.plan.units.end() || reshard_of(*configured, plan.job) != 0;
    return fmt::format("  fsdp_reshard_after_forward: {}\n", shown(frees));
}

}  // namespace

std::string left_to_the_script(const TrainingJob& job) {
    return fmt::format("batch {}, {} tokens, {} micro-batches a step, {}, loss {}, attention {}", job.batch,
                       job.sequence, job.accumulate, name(job.optimizer), name(job.loss),
                       name(job.attention));
}

std::string write_accelerate(const PlanToWrite& plan) {
    const TrainingJob& job = plan.job;
    if (job.runtime != "fsdp1" && job.runtime != "fsdp2") {
        throw Error(ErrorKind::input, "settings of accelerate",
                    "say FSDP only, and the plan's runtime is " + job.runtime);
    }
    const ActivationCheckpointing& checkpointing = job.activation_checkpointing;
    const bool by_model = checkpointing.by_model(plan.tree);
    const bool wraps = !by_model && !checkpointing.regions(plan.tree).empty();
    std::string out = "# Written by fsdplan. Left to the training script: " + left_to_the_script(job) +
                      (by_model ? ", model.gradient_checkpointing_enable()" : "") + "\n";
    out += fmt::format(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: {}\nnum_processes: {}\n"
        "fsdp_config:\n  fsdp_version: {}\n",
        mixed_precision(plan), job.mesh.ranks(), job.runtime == "fsdp2" ? 2 : 1);
    out += policy_lines(plan);
    out += job.runtime == "fsdp2" ? version_2(plan) : version_1(job);
    out += fmt::format(
        "  fsdp_offload_params: {}\n  fsdp_activation_checkpointing: {}\n"
        "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
        shown(job.offload), shown(wraps));
    return out;
}

}  // namespace fsdplan::frontend
