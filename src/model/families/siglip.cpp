#include <array>

#include "model/heads.hpp"
#include "model/siglip_towers.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr const PrefixedClasses& classes = siglip_towers::family.classes;

void both_towers(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("Model"));
    siglip_towers::text_model(config.nested_or_empty("text_config"), Place(root, "text_model"));
    siglip_towers::vision_model(config.nested_or_empty("vision_config"), Place(root, "vision_model"));
    root.parameter("logit_scale", {1});
    root.parameter("logit_bias", {1});
}

void image_classification(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForImageClassification"));
    const std::int64_t width =
        siglip_towers::vision_model(config.nested_or_empty("vision_config"), Place(root, "vision_model"));
    classifier_or_identity(root, width, num_labels(config));
}

constexpr std::array<std::string_view, 1> model_types{"siglip"};
constexpr std::array architectures{
    Architecture{"SiglipModel", both_towers},
    Architecture{"SiglipForImageClassification", image_classification},
};

}  // namespace

extern const FamilyInfo siglip;
constinit const FamilyInfo siglip{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "SiglipModel",
    .no_split_classes = siglip_towers::no_split,
    .longest_sequence =
        [](const Config& config) { return longest_by_positions(config.nested_or_empty("text_config")); },
};

}  // namespace fsdplan::builtin::family
