#include <algorithm>

#include "fsdplan/wrap.hpp"

namespace fsdplan {

std::string_view name(WrapRule rule) {
    switch (rule) {
        case WrapRule::shared_module_wrapped_inside:
            return "shared_module_wrapped_inside";
        case WrapRule::mixed_requires_grad_in_target:
            return "mixed_requires_grad_in_target";
        case WrapRule::mixed_requires_grad:
            return "mixed_requires_grad";
        case WrapRule::mixed_dtype:
            return "mixed_dtype";
        case WrapRule::integer_parameter:
            return "integer_parameter";
        case WrapRule::scalar_parameter:
            return "scalar_parameter";
        case WrapRule::empty_flat_parameter:
            return "empty_flat_parameter";
        case WrapRule::uninitialized_parameter:
            return "uninitialized_parameter";
        case WrapRule::custom_policy_value:
            return "custom_policy_value";
        case WrapRule::unknown_unit_argument:
            return "unknown_unit_argument";
        case WrapRule::already_wrapped:
            return "already_wrapped";
        case WrapRule::ignored_both:
            return "ignored_both";
        case WrapRule::fully_shard_twice:
            return "fully_shard_twice";
        case WrapRule::fully_shard_container:
            return "fully_shard_container";
        case WrapRule::already_sharded:
            return "already_sharded";
        case WrapRule::reshard_ranks:
            return "reshard_ranks";
        case WrapRule::uneven_shard_dim:
            return "uneven_shard_dim";
        case WrapRule::hybrid_without_groups:
            return "hybrid_without_groups";
        case WrapRule::tied_across_groups:
            return "tied_across_groups";
        case WrapRule::several_roots:
            return "several_roots";
        case WrapRule::unequal_settings:
            return "unequal_settings";
        case WrapRule::unit_before_root:
            return "unit_before_root";
        case WrapRule::tie_broken:
            return "tie_broken";
        case WrapRule::tied_across_units:
            return "tied_across_units";
        case WrapRule::frozen_with_trainable:
            return "frozen_with_trainable";
        case WrapRule::root_is_container:
            return "root_is_container";
        case WrapRule::root_ignored:
            return "root_ignored";
        case WrapRule::not_called_through_unit:
            return "not_called_through_unit";
    }
    return "";
}

std::string_view name(Severity severity) {
    switch (severity) {
        case Severity::warning:
            return "warning";
        case Severity::forward_error:
            return "forward_error";
        case Severity::error:
            return "error";
    }
    return "";
}

std::vector<std::string> default_force_leaf() {
    return {"torch.nn.modules.activation.MultiheadAttention"};
}

std::vector<std::string> default_exclude() {
    return {"torch.nn.modules.container.ModuleList", "torch.nn.modules.container.ModuleDict"};
}

std::vector<std::string> default_keep_full_precision() {
    return {"torch.nn.modules.batchnorm._BatchNorm"};
}

const Diagnostic* WrapPlan::construction_error() const {
    for (const Diagnostic& diagnostic : diagnostics) {
        if (diagnostic.severity == Severity::error) {
            return &diagnostic;
        }
    }
    return nullptr;
}

std::string_view unquoted(std::string_view value) {
    return value.size() > 1 && value.starts_with('"') ? value.substr(1, value.size() - 2) : value;
}

const std::string* find_argument(const UnitArguments& arguments, std::string_view name) {
    const auto found =
        std::ranges::find(arguments, name, [](const auto& a) -> std::string_view { return a.first; });
    return found == arguments.end() ? nullptr : &found->second;
}

}  // namespace fsdplan
