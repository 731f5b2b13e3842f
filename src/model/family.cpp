#include "model/family.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

constexpr std::string_view export_route =
    "; any other model can be exported from Python as a module-tree JSON (docs/formats.md)";

}  // namespace

const FamilyInfo& family_of(const Config& config) {
    const json::Value type = config.value().at("model_type");
    std::vector<std::string> known;
    for (const FamilyInfo* family : builtin::families()) {
        for (const std::string_view name : family->model_types) {
            if (name == type.string()) {
                return *family;
            }
            known.emplace_back(name);
        }
    }
    throw Error(ErrorKind::input, type.where(),
                "the model type " + json::quote(type.string()) + " is not built in" +
                    did_you_mean(type.string(), known) + std::string(export_route));
}

void build_nested(const Config& config, const Place& place) {
    const FamilyInfo& family = family_of(config);
    const auto backbone = std::ranges::find(family.architectures, family.backbone, &Architecture::name);
    FSDPLAN_ASSERT(backbone != family.architectures.end(), "a family's backbone is one of its architectures");
    backbone->build(config, place);
}

std::optional<std::int64_t> longest_by_positions(const Config& config) {
    return config.optional_size("max_position_embeddings");
}

}  // namespace fsdplan
