#include "model/multimodal.hpp"

namespace fsdplan {

Scope nested_model(Scope parent, const std::string& name, const Config& nested, std::string_view absent) {
    build_nested(family_of(nested, absent), nested, Place(parent, name));
    return parent[name];
}

std::int64_t token_width(Scope language_model, const Config& nested) {
    const std::optional<Scope> table = language_model.find("embed_tokens");
    if (!table) {
        throw Error(ErrorKind::input, nested.value().where(),
                    "this family has no embed_tokens and cannot be the language model here");
    }
    return table->shape("weight").back();
}

std::int64_t patch_width(Scope tower, const Config& config) {
    const std::optional<Scope> embeddings = tower.find("embeddings");
    const std::optional<Scope> patches = embeddings ? embeddings->find("patch_embedding") : std::nullopt;
    if (!patches) {
        config.refuse("vision_config", "this family is no vision tower that can be built in here");
    }
    return patches->shape("weight").front();
}

void output_layer(Scope root, Scope language_model, bool tied) {
    const Scope table = language_model["embed_tokens"];
    const std::vector<std::int64_t>& shape = table.shape("weight");
    const Scope head = linear(root, "lm_head", shape[1], shape[0], false);
    if (tied) {
        head.tie("weight", table, "weight");
    }
}

}  // namespace fsdplan
