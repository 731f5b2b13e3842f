#include <array>

#include "model/siglip_towers.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr std::array<std::string_view, 1> model_types{"siglip_text_model"};
constexpr std::array architectures{Architecture{"SiglipTextModel", siglip_towers::text_model}};

}  // namespace

extern const FamilyInfo siglip_text_model;
constinit const FamilyInfo siglip_text_model{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "SiglipTextModel",
    .no_split_classes = siglip_towers::no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
