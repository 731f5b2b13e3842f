#include "frontend/accelerated_plan.hpp"

#include "frontend/python_value.hpp"

namespace fsdplan::frontend {
namespace {

using Wrap = AcceleratePlugin::Wrap;

std::string shown(bool value) {
    return value ? "true" : "false";
}

std::string comma_separated(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) {
        out += (out.empty() ? "" : ",") + name;
    }
    return out;
}

void fill_job(const AcceleratePlugin& plugin, const std::string& file, TrainingJob& job) {
    const auto& precision = plugin.mixed_precision;
    job.runtime = plugin.version == 2 ? "fsdp2" : "fsdp1";
    job.offload = plugin.offload;
    job.param_dtype = precision ? std::optional(precision->param) : std::nullopt;
    job.reduce_dtype = precision ? std::optional(precision->reduce) : std::nullopt;
    if (plugin.version == 2) {
        return;  // every call says itself whether it reshards
    }
    job.strategy = parse_strategy(python_str(plugin.sharding_strategy), file);
    job.use_orig_params = plugin.use_orig_params.value_or(false);
    job.backward_prefetch = plugin.backward_prefetch.value_or(BackwardPrefetch::none);
    job.forward_prefetch = plugin.forward_prefetch.value_or(false);
    job.limit_all_gathers = plugin.limit_all_gathers;
    if (precision) {
        job.buffer_dtype = precision->other;
    }
}

AcceleratedModel prepared(const AcceleratePlugin& plugin, const FrontendQuestion& about,
                          const std::string& file) {
    try {
        return or_error(
            accelerate_prepare(about.tree, model_hints(about.model, about.tree), plugin, about.ranks), file);
    } catch (const Error& error) {
        const Fault& fault = error.faults().front();
        if (fault.where == file) {
            throw;
        }
        throw Error(ErrorKind::input, file, fault.where + ": " + fault.message);
    }
}

/// What surprises whoever wrote the settings.
void note_effects(const AcceleratePlugin& plugin, const std::string& file, FrontendPlan& out) {
    const auto note = [&](const std::string& text) { out.notes.push_back(file + ": " + text); };
    const auto* threshold = std::get_if<std::int64_t>(&plugin.min_num_params);
    if (plugin.wrap == Wrap::size && threshold != nullptr && *threshold <= 0) {
        note("fsdp_min_num_params of " + std::to_string(*threshold) +
             " means no wrapping at all; PyTorch's own policy would wrap nearly everything");
    }
    if (plugin.wrap == Wrap::none) {
        note("no fsdp_auto_wrap_policy: all blocks are one unit");
    }
    if (out.trainable_dtype) {
        note("with mixed_precision trainable parameters are stored in float32, whatever they are loaded in");
    }
}

}  // namespace

void prepare_plan(const AcceleratePlugin& plugin, std::string_view mixed_precision,
                  const FrontendQuestion& about, const std::string& file, FrontendPlan& out) {
    fill_job(plugin, file, out.job);
    AcceleratedModel model = prepared(plugin, about, file);
    out.policy = std::move(model.policy);
    out.wrap = std::move(model.options);
    if (plugin.activation_checkpointing) {
        ActivationCheckpointing& checkpointing = out.job.activation_checkpointing;
        checkpointing = {.placement = plugin.version == 2 ? ActivationCheckpointing::Placement::outside
                                                          : ActivationCheckpointing::Placement::inside,
                         .modules = std::move(model.checkpointed)};
    }
    if (mixed_precision != "no") {
        out.trainable_dtype = DType::float32;
    }
    note_effects(plugin, file, out);
}

std::vector<std::pair<std::string, std::string>> plugin_settings(const AcceleratePlugin& plugin,
                                                                 const ModelGraph& model) {
    std::vector<std::pair<std::string, std::string>> out;
    const auto add = [&](const char* key, std::string value) { out.emplace_back(key, std::move(value)); };
    add("version", std::to_string(plugin.version));
    switch (plugin.wrap) {
        case Wrap::none:
            add("auto_wrap_policy", "NO_WRAP");
            break;
        case Wrap::transformer:
            add("auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
            add("transformer_layer_cls_to_wrap",
                comma_separated(plugin.classes.value_or(model.no_split_classes)));
            break;
        case Wrap::size:
            add("auto_wrap_policy", "SIZE_BASED_WRAP");
            add("min_num_params", python_str(plugin.min_num_params));
            break;
    }
    if (plugin.version == 2) {
        add("reshard_after_forward", shown(truth(plugin.reshard_after_forward)));
    } else {
        add("sharding_strategy", python_str(plugin.sharding_strategy));
        add("use_orig_params", shown(plugin.use_orig_params.value_or(false)));
        add("sync_module_states", shown(plugin.sync_module_states.value_or(false)));
        add("backward_prefetch",
            std::string(name(plugin.backward_prefetch.value_or(BackwardPrefetch::none))));
        add("forward_prefetch", shown(plugin.forward_prefetch.value_or(false)));
        add("limit_all_gathers", shown(plugin.limit_all_gathers));
    }
    add("offload_params", shown(plugin.offload));
    add("activation_checkpointing", shown(plugin.activation_checkpointing));
    add("cpu_ram_efficient_loading", shown(plugin.cpu_ram_efficient_loading));
    add("state_dict_type", plugin.state_dict_type);
    return out;
}

}  // namespace fsdplan::frontend
