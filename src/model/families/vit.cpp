#include <array>

#include "model/config_fields.hpp"
#include "model/heads.hpp"
#include "model/layer_parts.hpp"
#include "model/two_towers.hpp"
#include "operators/attention.hpp"
#include "operators/convolution.hpp"
#include "operators/language_model.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.vit.modeling_vit", "ViTPreTrainedModel"}, "ViT"};

struct Extent {
    std::int64_t height, width;
};

// One number for a square, or a pair.
Extent extent(const Config& config, std::string_view key, std::int64_t absent) {
    const std::optional<json::Value> found = config.value().find(key);
    if (!found || !found->is_array()) {
        const std::int64_t side = whole(config, {key}, absent);
        return {side, side};
    }
    const std::vector<std::int64_t> pair = config.sizes(key, {});
    if (pair.size() != 2 || pair[0] == 0 || pair[1] == 0) {
        config.refuse(key, "expected one size or height and width");
    }
    return {pair[0], pair[1]};
}

struct ViT {
    explicit ViT(const Config& c)
        : hidden(whole(c, {"hidden_size"}, 768)),
          intermediate(whole(c, {"intermediate_size"}, 3072)),
          layers(whole_count(c, {"num_hidden_layers"}, 12)),
          heads(whole(c, {"num_attention_heads"}, 12)),
          attention(c.product(heads, c.optional_size("head_dim").value_or(hidden / heads))),
          channels(whole(c, {"num_channels"}, 3)),
          patch(extent(c, "patch_size", 16)),
          image(extent(c, "image_size", 224)),
          patches(c.product(image.height / patch.height, image.width / patch.width)),
          act(c.text("hidden_act", "gelu")),
          qkv_bias(c.flag("qkv_bias", true)) {}

    std::int64_t hidden, intermediate, layers, heads, attention, channels;
    Extent patch, image;
    std::int64_t patches;
    std::string act;
    bool qkv_bias;
};

void embeddings(const ViT& c, Scope model, bool mask_token) {
    const Scope m = model.child("embeddings", classes.plain("Embeddings"));
    m.parameter("cls_token", {1, 1, c.hidden});
    if (mask_token) {
        m.parameter("mask_token", {1, 1, c.hidden});
    }
    m.parameter("position_embeddings", {1, c.patches + 1, c.hidden});
    const Scope patches = m.child("patch_embeddings", classes.plain("PatchEmbeddings"));
    conv2d(patches, "projection", c.channels, c.hidden, c.patch.height, c.patch.width);
    dropout(m, "dropout");
}

void encoder_layer(const ViT& c, Scope layer) {
    const Scope m = layer.child("attention", classes.plain("Attention"));
    linear(m, "q_proj", c.hidden, c.attention, c.qkv_bias);
    linear(m, "k_proj", c.hidden, c.attention, c.qkv_bias);
    linear(m, "v_proj", c.hidden, c.attention, c.qkv_bias);
    linear(m, "o_proj", c.attention, c.hidden, true);
    layer_norm(layer, "layernorm_before", c.hidden);
    layer_norm(layer, "layernorm_after", c.hidden);
    vision_mlp(layer, "mlp", classes.plain("MLP"), c.hidden, c.intermediate, c.act);
    dropout(layer, "dropout");
}

struct Parts {
    bool pooler = false;
    bool mask_token = false;
};

ViT backbone(const Config& config, const Place& place, Parts parts) {
    ViT c(config);
    const Scope model = place.create(classes.pretrained("Model"));
    embeddings(c, model, parts.mask_token);
    repeat(model, "layers", c.layers, classes.layer("Layer"),
           [&](Scope layer, std::int64_t /*index*/) { encoder_layer(c, layer); });
    layer_norm(model, "layernorm", c.hidden);
    if (parts.pooler) {
        const Scope pooler = model.child("pooler", classes.plain("Pooler"));
        linear(pooler, "dense", c.hidden, size_or(config, "pooler_output_size", c.hidden), true);
        activation(pooler, "activation", config.text("pooler_act", "tanh"));
    }
    return c;
}

void image_classification(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForImageClassification"));
    const ViT c = backbone(config, Place(root, "vit"), {});
    classifier_or_identity(root, c.hidden, num_labels(config));
}

void masked_image_modeling(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForMaskedImageModeling"));
    const ViT c = backbone(config, Place(root, "vit"), {.mask_token = true});
    const Scope decoder = root.child("decoder", classes::sequential());
    const std::int64_t stride = whole(config, {"encoder_stride"}, 16);
    conv2d(decoder, "0", c.hidden, config.product(config.product(stride, stride), c.channels), 1, 1);
    decoder.child("1", classes::torch_module("pixelshuffle.PixelShuffle"));
}

Value embeddings_forward(Eager& f, ModuleIndex m, const Value& image, double dropout) {
    return f.call(m, {&image}, [&] {
        const ModuleIndex patches = layer::child(f, m, "patch_embeddings");
        const ModuleIndex projection = layer::child(f, patches, "projection");
        Value hidden = f.call(patches, {&image}, [&] {
            return f.call(projection, {&image}, [&] {
                return op::patch_convolution(f, image, f.parameter(projection, "weight"),
                                             f.parameter(projection, "bias"));
            });
        });
        const Value first = op::expand_batch(f, f.parameter(m, "cls_token"), image.size(0));
        hidden = op::cat_rows(f, first, hidden);
        hidden = op::add(f, hidden, f.parameter(m, "position_embeddings"));
        return layer::dropout(f, layer::child(f, m, "dropout"), hidden, dropout);
    });
}

Value attention_forward(Eager& f, ModuleIndex m, const Value& x, std::int64_t heads) {
    return f.call(m, {&x}, [&] {
        const auto projected = [&](std::string_view name) {
            return attention::heads(f, layer::linear(f, layer::child(f, m, name), x), heads, true);
        };
        const Value q = projected("q_proj");
        const Value k = projected("k_proj");
        const Value v = projected("v_proj");
        return layer::linear(f, layer::child(f, m, "o_proj"), attention::sdpa(f, q, k, v, {}, false));
    });
}

Value mlp_forward(Eager& f, ModuleIndex m, const Value& x, std::string_view act) {
    return f.call(m, {&x}, [&] {
        Value hidden = layer::linear(f, layer::child(f, m, "fc1"), x);
        hidden = layer::activation(f, layer::child(f, m, "activation_fn"), hidden, act);
        return layer::linear(f, layer::child(f, m, "fc2"), hidden);
    });
}

Value layer_forward(Eager& f, ModuleIndex m, const Value& x, const ViT& c, double dropout) {
    return f.call(m, {&x}, [&] {
        const auto part = [&](std::string_view name) { return layer::child(f, m, name); };
        Value hidden = layer::norm(f, part("layernorm_before"), x);
        hidden = attention_forward(f, part("attention"), hidden, c.heads);
        hidden = layer::dropout(f, part("dropout"), hidden, dropout);
        hidden = op::add(f, hidden, x);
        const Value residual = hidden;
        hidden = layer::norm(f, part("layernorm_after"), hidden);
        hidden = mlp_forward(f, part("mlp"), hidden, c.act);
        hidden = layer::dropout(f, part("dropout"), hidden, dropout);
        return op::add(f, hidden, residual);
    });
}

Value model_forward(Eager& f, ModuleIndex model, const Value& image, const ViT& c, double dropout) {
    return f.call(model, {&image}, [&] {
        const Value embedded = embeddings_forward(f, layer::child(f, model, "embeddings"), image, dropout);
        Value hidden = embedded;
        for (const ModuleIndex m : f.tree().children(layer::child(f, model, "layers"))) {
            hidden = layer_forward(f, m, hidden, c, dropout);
        }
        return layer::norm(f, layer::child(f, model, "layernorm"), hidden);
    });
}

Value forward(const Config& config, Eager& f, ModuleIndex top) {
    // One label, or another problem_type, means another loss.
    if (short_name(f.tree().class_info(top).name) != classes.full("ForImageClassification") ||
        num_labels(config) < 2 || config.has("problem_type") ||
        f.workload().attention != AttentionImplementation::sdpa) {
        return {};
    }
    const ViT c(config);
    const double dropout = config.number("hidden_dropout_prob", 0.0);
    const ModuleIndex model = layer::child(f, top, "vit");
    const TensorIndex table = f.tree().parameters(layer::child(f, model, "embeddings")).front();
    // Images come in the dtype of the stored parameters and are cast to that of the computation.
    const Value image = f.outside({f.workload().batch, c.channels, c.image.height, c.image.width},
                                  f.tree().tensors[at(table)].dtype);
    return f.call(top, {&image}, [&] {
        const Value cast = op::to(f, image, f.parameter(table).dtype());
        const Value states = model_forward(f, model, cast, c, dropout);
        const Value first = op::first_of_sequence(f, states);
        return class_loss(f, layer::linear(f, layer::child(f, top, "classifier"), first));
    });
}

constexpr std::array<std::string_view, 1> model_types{"vit"};
constexpr std::array<std::string_view, 2> no_split{"ViTEmbeddings", "ViTLayer"};
constexpr std::array architectures{
    Architecture{"ViTForImageClassification", image_classification},
    Architecture{"ViTModel",
                 [](const Config& config, const Place& place) { backbone(config, place, {.pooler = true}); }},
    Architecture{"ViTForMaskedImageModeling", masked_image_modeling},
};

}  // namespace

extern const FamilyInfo vit;
constinit const FamilyInfo vit{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "ViTModel",
    .no_split_classes = no_split,
    .longest_sequence = [](const Config& config) { return image_tokens(config, true); },
    .forward = forward,
};

}  // namespace fsdplan::builtin::family
