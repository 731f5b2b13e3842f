#include "model/siglip_towers.hpp"

#include "model/layer_parts.hpp"

namespace fsdplan::siglip_towers {
namespace {

// One learned query attends to all patches.
void pooling_head(const TowerSizes& sizes, Scope tower) {
    const Scope m = tower.child("head", family.classes.plain("MultiheadAttentionPoolingHead"));
    m.parameter("probe", {1, 1, sizes.hidden});
    multihead_attention(m, "attention", sizes.hidden);
    layer_norm(m, "layernorm", sizes.hidden);
    vision_mlp(m, "mlp", family.classes.plain("MLP"), sizes.hidden, sizes.intermediate, sizes.act);
}

}  // namespace

void text_model(const Config& config, const Place& place) {
    const TowerSizes sizes(family, family.text, config);
    const Scope tower = place.create(family.classes.pretrained("TextModel"));
    text_embeddings(family, sizes, config, tower);
    tower_encoder(family, sizes, tower);
    layer_norm(tower, "final_layer_norm", sizes.hidden);
    linear(tower, "head", sizes.hidden, config.optional_size("projection_size").value_or(sizes.hidden), true);
}

std::int64_t vision_model(const Config& config, const Place& place) {
    const TowerSizes sizes(family, family.vision, config);
    const Scope tower = place.create(family.classes.pretrained("VisionModel"));
    vision_embeddings(family, sizes, config, tower);
    tower_encoder(family, sizes, tower);
    layer_norm(tower, "post_layernorm", sizes.hidden);
    if (config.flag("vision_use_head", true)) {
        config.require_divides(sizes.heads, "num_attention_heads", sizes.hidden, "hidden_size");
        pooling_head(sizes, tower);
    }
    return sizes.hidden;
}

}  // namespace fsdplan::siglip_towers
