#include "model/two_towers.hpp"

#include "model/config_fields.hpp"
#include "model/layer_parts.hpp"

namespace fsdplan {
namespace {

void position_embedding(Scope embeddings, std::int64_t rows, std::int64_t width) {
    embedding(embeddings, "position_embedding", rows, width);
    embeddings.buffer("position_ids", {1, rows}, DType::int64, false);
}

}  // namespace

TowerSizes::TowerSizes(const TowerFamily& family, const TowerDefaults& defaults, const Config& config)
    : hidden(whole(config, {"hidden_size"}, defaults.hidden)),
      intermediate(whole(config, {"intermediate_size"}, defaults.intermediate)),
      layers(whole_count(config, {"num_hidden_layers"}, defaults.layers)),
      heads(whole(config, {"num_attention_heads"}, defaults.heads)),
      act(config.text("hidden_act", family.act)) {
    if (layers > 0 || family.checks_heads) {
        config.require_divides(heads, "num_attention_heads", hidden, "hidden_size");
    }
}

void text_embeddings(const TowerFamily& family, const TowerSizes& sizes, const Config& config, Scope tower) {
    const Scope m = tower.child("embeddings", family.classes.plain("TextEmbeddings"));
    embedding(m, "token_embedding", whole(config, {"vocab_size"}, family.vocab), sizes.hidden);
    position_embedding(m, whole(config, {"max_position_embeddings"}, family.positions), sizes.hidden);
}

void vision_embeddings(const TowerFamily& family, const TowerSizes& sizes, const Config& config,
                       Scope tower) {
    const Scope m = tower.child("embeddings", family.classes.plain("VisionEmbeddings"));
    const std::int64_t patch = whole(config, {"patch_size"}, family.patch);
    const std::int64_t side = whole(config, {"image_size"}, 224) / patch;
    if (family.class_token) {
        m.parameter("class_embedding", {sizes.hidden});
    }
    conv2d(m, "patch_embedding", whole(config, {"num_channels"}, 3), sizes.hidden, patch, patch,
           !family.class_token);
    position_embedding(m, config.product(side, side) + (family.class_token ? 1 : 0), sizes.hidden);
}

void tower_encoder(const TowerFamily& family, const TowerSizes& sizes, Scope tower) {
    const auto fill = [&](Scope layer, std::int64_t /*index*/) {
        const auto norm = [&](const char* name, bool here) {
            if (here) {
                layer_norm(layer, name, sizes.hidden);
            }
        };
        norm("layer_norm1", family.norm_first);
        kvqo_attention(layer, "self_attn", family.classes.plain("Attention"), sizes.hidden);
        norm("layer_norm1", !family.norm_first);
        norm("layer_norm2", family.norm_first);
        vision_mlp(layer, "mlp", family.classes.plain("MLP"), sizes.hidden, sizes.intermediate, sizes.act);
        norm("layer_norm2", !family.norm_first);
    };
    repeat(tower.child("encoder", family.classes.plain("Encoder")), "layers", sizes.layers,
           family.classes.layer("EncoderLayer"), fill);
}

std::optional<std::int64_t> image_tokens(const Config& config, bool class_token) {
    const std::optional<json::Value> image = config.value().find("image_size");
    const std::optional<json::Value> patch = config.value().find("patch_size");
    if (!image || !patch || !image->is_integer() || !patch->is_integer()) {
        return std::nullopt;
    }
    const std::int64_t side = whole(config, {"image_size"}, 0) / whole(config, {"patch_size"}, 0);
    return config.product(side, side) + (class_token ? 1 : 0);
}

}  // namespace fsdplan
