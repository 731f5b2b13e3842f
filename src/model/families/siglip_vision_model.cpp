#include <array>

#include "model/siglip_towers.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr std::array<std::string_view, 1> model_types{"siglip_vision_model"};
constexpr std::array architectures{
    Architecture{"SiglipVisionModel", [](const Config& config,
                                         const Place& place) { siglip_towers::vision_model(config, place); }},
};

}  // namespace

extern const FamilyInfo siglip_vision_model;
constinit const FamilyInfo siglip_vision_model{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "SiglipVisionModel",
    .no_split_classes = siglip_towers::no_split,
    .longest_sequence = [](const Config& config) { return image_tokens(config, false); },
};

}  // namespace fsdplan::builtin::family
