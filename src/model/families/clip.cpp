#include <array>

#include "model/clip_towers.hpp"
#include "model/config_fields.hpp"
#include "model/heads.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr const PrefixedClasses& classes = clip_towers::family.classes;

// Older files have text_config_dict beside text_config; with its defaults it replaces the latter.
Config tower(const Config& config, const std::string& key) {
    const Config newer = config.nested_or_empty(key);
    return config.nested(key + "_dict").value_or(newer);
}

void both_towers(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("Model"));
    const std::int64_t text =
        clip_towers::text_model(tower(config, "text_config"), Place(root, "text_model"));
    const std::int64_t vision =
        clip_towers::vision_model(tower(config, "vision_config"), Place(root, "vision_model"));
    const std::int64_t projected = whole(config, {"projection_dim"}, 512);
    linear(root, "visual_projection", vision, projected, false);
    linear(root, "text_projection", text, projected, false);
    root.parameter("logit_scale", {});
}

void image_classification(const Config& config, const Place& place) {
    // The text tower is not built, but its configuration has to be possible.
    [[maybe_unused]] const TowerSizes text(clip_towers::family, clip_towers::family.text,
                                           Config(tower(config, "text_config").value()));
    const Scope root = place.create(classes.pretrained("ForImageClassification"));
    const std::int64_t width =
        clip_towers::vision_model(tower(config, "vision_config"), Place(root, "vision_model"));
    classifier_or_identity(root, width, num_labels(config));
}

constexpr std::array<std::string_view, 1> model_types{"clip"};
constexpr std::array architectures{
    Architecture{"CLIPModel", both_towers},
    Architecture{"CLIPForImageClassification", image_classification},
};

}  // namespace

extern const FamilyInfo clip;
constinit const FamilyInfo clip{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "CLIPModel",
    .no_split_classes = clip_towers::no_split,
    .longest_sequence =
        [](const Config& config) { return longest_by_positions(tower(config, "text_config")); },
};

}  // namespace fsdplan::builtin::family
