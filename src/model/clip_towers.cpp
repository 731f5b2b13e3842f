#include "model/clip_towers.hpp"

namespace fsdplan::clip_towers {

std::int64_t text_model(const Config& config, const Place& place) {
    const TowerSizes sizes(family, family.text, config);
    const Scope tower = place.create(family.classes.pretrained("TextModel"));
    text_embeddings(family, sizes, config, tower);
    tower_encoder(family, sizes, tower);
    layer_norm(tower, "final_layer_norm", sizes.hidden);
    return sizes.hidden;
}

std::int64_t vision_model(const Config& config, const Place& place) {
    const TowerSizes sizes(family, family.vision, config);
    const Scope tower = place.create(family.classes.pretrained("VisionModel"));
    vision_embeddings(family, sizes, config, tower);
    layer_norm(tower, "pre_layrnorm", sizes.hidden);
    tower_encoder(family, sizes, tower);
    layer_norm(tower, "post_layernorm", sizes.hidden);
    return sizes.hidden;
}

}  // namespace fsdplan::clip_towers
