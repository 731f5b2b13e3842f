#include "model/family.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

constexpr std::string_view export_route =
    "; any other model can be exported from Python as a module-tree JSON (docs/formats.md)";

}  // namespace

const FamilyInfo& family_named(std::string_view model_type, const std::string& where) {
    std::vector<std::string> known;
    for (const FamilyInfo* family : builtin::families()) {
        for (const std::string_view name : family->model_types) {
            if (name == model_type) {
                return *family;
            }
            known.emplace_back(name);
        }
    }
    throw Error(ErrorKind::input, where,
                "the model type " + json::quote(model_type) + " is not built in" +
                    did_you_mean(model_type, known) + std::string(export_route));
}

const FamilyInfo& family_of(const Config& config) {
    const json::Value type = config.value().at("model_type");
    return family_named(type.string(), type.where());
}

const FamilyInfo& family_of(const Config& nested, std::string_view absent) {
    return nested.has("model_type") ? family_of(nested) : family_named(absent, nested.value().where());
}

void build_nested(const FamilyInfo& family, const Config& nested, const Place& place) {
    const auto backbone = std::ranges::find(family.architectures, family.backbone, &Architecture::name);
    FSDPLAN_ASSERT(backbone != family.architectures.end(), "a family's backbone is one of its architectures");
    std::vector<std::string>& no_split = place.builder().graph().no_split_classes;
    no_split.insert(no_split.end(), family.no_split_classes.begin(), family.no_split_classes.end());
    backbone->build(nested, place);
}

std::optional<std::int64_t> longest_by_positions(const Config& config) {
    return config.optional_size("max_position_embeddings");
}

}  // namespace fsdplan
