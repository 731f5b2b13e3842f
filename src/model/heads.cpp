#include "model/heads.hpp"

#include "model/config_fields.hpp"

namespace fsdplan {
namespace {

std::optional<std::int64_t> named_labels(const Config& config) {
    const std::optional<Config> names = config.nested("id2label");
    return names ? std::optional(static_cast<std::int64_t>(names->value().size())) : std::nullopt;
}

std::optional<std::int64_t> counted_labels(const Config& config) {
    const bool given = config.value().find("num_labels").has_value();
    return given ? std::optional(whole(config, {"num_labels"}, 0, 0)) : std::nullopt;
}

}  // namespace

// A num_labels replaces an id2label of another length, but only after the check.
std::int64_t num_labels(const Config& config, std::int64_t absent) {
    const std::optional<std::int64_t> named = named_labels(config);
    const std::optional<std::int64_t> counted = counted_labels(config);
    return counted ? *counted : named ? *named : whole(config, {"num_labels"}, absent, 0);
}

void check_labels(const Config& config) {
    const std::optional<std::int64_t> named = named_labels(config);
    const std::optional<std::int64_t> counted = counted_labels(config);
    if ((named ? named : counted) == 1 && config.text("problem_type", "") == "single_label_classification") {
        config.refuse("problem_type", "single_label_classification needs more than one label");
    }
}

Scope dense_head(Scope parent, std::string name, const ModuleClass& module_class, std::int64_t width,
                 std::int64_t labels) {
    const Scope head = parent.child(std::move(name), module_class);
    linear(head, "dense", width, width, true);
    dropout(head, "dropout");
    linear(head, "out_proj", width, labels, true);
    return head;
}

void classifier_or_identity(Scope root, std::int64_t width, std::int64_t labels) {
    if (labels > 0) {
        linear(root, "classifier", width, labels, true);
    } else {
        identity(root, "classifier");
    }
}

void weighted_layer_sum(Scope root, const Config& config, std::int64_t layers) {
    if (config.flag("use_weighted_layer_sum", false)) {
        root.parameter("layer_weights", {layers + 1});
    }
}

}  // namespace fsdplan
