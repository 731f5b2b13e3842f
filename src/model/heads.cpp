#include "model/heads.hpp"

#include "model/config_fields.hpp"

namespace fsdplan {
namespace {

// A num_labels replaces an id2label of another length.
std::int64_t listed_labels(const Config& config, std::int64_t absent) {
    const std::optional<Config> names = config.nested("id2label");
    return names && !config.value().find("num_labels") ? static_cast<std::int64_t>(names->value().size())
                                                       : whole(config, {"num_labels"}, absent, 0);
}

}  // namespace

std::int64_t num_labels(const Config& config, std::int64_t absent) {
    const std::int64_t labels = listed_labels(config, absent);
    if (labels == 1 && config.text("problem_type", "") == "single_label_classification") {
        config.refuse("problem_type", "single_label_classification needs more than one label");
    }
    return labels;
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
