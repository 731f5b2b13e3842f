#include <array>

#include "model/config_fields.hpp"
#include "model/family.hpp"
#include "model/heads.hpp"
#include "model/layer_parts.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{
    {"transformers.models.wav2vec2.modeling_wav2vec2", "Wav2Vec2PreTrainedModel"}, "Wav2Vec2"};

struct Wav2Vec2 {
    explicit Wav2Vec2(const Config& c);

    std::int64_t hidden, intermediate, layers, heads, output;
    std::string act, conv_act;
    std::vector<std::int64_t> conv_width, conv_kernel;  ///< one entry a layer of the feature encoder
    bool conv_bias, stable_layer_norm, adapter;
};

Wav2Vec2::Wav2Vec2(const Config& c)
    : hidden(whole(c, {"hidden_size"}, 768)),
      intermediate(whole(c, {"intermediate_size"}, 3072)),
      layers(whole_count(c, {"num_hidden_layers"}, 12)),
      heads(whole(c, {"num_attention_heads"}, 12)),
      output(size_or(c, "output_hidden_size", hidden)),
      act(c.text("hidden_act", "gelu")),
      conv_act(c.text("feat_extract_activation", "gelu")),
      conv_width(c.sizes("conv_dim", {512, 512, 512, 512, 512, 512, 512})),
      conv_kernel(c.sizes("conv_kernel", {10, 3, 3, 3, 3, 2, 2})),
      conv_bias(c.flag("conv_bias", false)),
      stable_layer_norm(c.flag("do_stable_layer_norm", false)),
      adapter(c.flag("add_adapter", false)) {
    const std::size_t strides = c.sizes("conv_stride", {5, 2, 2, 2, 2, 2, 2}).size();
    const std::int64_t listed = static_cast<std::int64_t>(conv_width.size());
    if (conv_width.empty() || conv_kernel.size() != conv_width.size() || strides != conv_width.size() ||
        whole_count(c, {"num_feat_extract_layers"}, listed) != listed) {
        c.refuse("conv_dim",
                 "conv_dim, conv_stride and conv_kernel need one entry for each layer of the "
                 "feature encoder, but have " +
                     std::to_string(conv_width.size()) + ", " + std::to_string(strides) + " and " +
                     std::to_string(conv_kernel.size()));
    }
}

void feature_encoder(const Wav2Vec2& c, const Config& config, Scope model) {
    const std::string norm = config.text("feat_extract_norm", "group");
    if (norm != "group" && norm != "layer") {
        config.refuse("feat_extract_norm",
                      "unknown norm " + json::quote(norm) + "; expected \"group\" or \"layer\"");
    }
    const Scope layers =
        module_list(model.child("feature_extractor", classes.plain("FeatureEncoder")), "conv_layers");
    for (std::size_t i = 0; i < c.conv_width.size(); ++i) {
        const bool grouped = norm == "group" && i == 0;
        const Scope layer =
            layers.child(std::to_string(i), classes.layer(norm == "layer" ? "LayerNormConvLayer"
                                                          : grouped       ? "GroupNormConvLayer"
                                                                          : "NoLayerNormConvLayer"));
        conv1d(layer, "conv", i == 0 ? 1 : c.conv_width[i - 1], c.conv_width[i], c.conv_kernel[i],
               c.conv_bias);
        if (norm == "layer") {
            layer_norm(layer, "layer_norm", c.conv_width[i]);
        }
        activation(layer, "activation", c.conv_act);
        if (grouped) {
            const Scope m = layer.child("layer_norm", classes::torch_module("normalization.GroupNorm"));
            m.parameter("weight", {c.conv_width[i]});
            m.parameter("bias", {c.conv_width[i]});
        }
    }
}

void feature_projection(const Wav2Vec2& c, Scope model) {
    const Scope m = model.child("feature_projection", classes.plain("FeatureProjection"));
    layer_norm(m, "layer_norm", c.conv_width.back());
    linear(m, "projection", c.conv_width.back(), c.hidden, true);
    dropout(m, "dropout");
}

// A convolution under weight norm: torch moves the weight into a parametrization, as a length for each tap
// and a direction, and gives the module a class of its own.
void position_convolution(const Wav2Vec2& c, const Config& config, Scope encoder) {
    const std::int64_t kernel = whole(config, {"num_conv_pos_embeddings"}, 128);
    const std::int64_t groups = whole(config, {"num_conv_pos_embedding_groups"}, 16);
    config.require_divides(groups, "num_conv_pos_embedding_groups", c.hidden, "hidden_size");
    const Scope m = encoder.child("pos_conv_embed", classes.plain("PositionalConvEmbedding"));
    ModuleClass parametrized = classes::conv1d();
    parametrized.bases.insert(parametrized.bases.begin(), parametrized.name);
    parametrized.name = "torch.nn.utils.parametrize.ParametrizedConv1d";
    const Scope conv = m.child("conv", parametrized);
    conv.parameter("bias", {c.hidden});
    ModuleClass list = classes::module_list();
    list.bases.insert(list.bases.begin(), list.name);
    list.name = "torch.nn.utils.parametrize.ParametrizationList";
    const Scope weight = conv.child("parametrizations", classes::module_dict()).child("weight", list);
    weight.parameter("original0", {1, 1, kernel});
    weight.parameter("original1", {c.hidden, c.hidden / groups, kernel});
    weight.child("0", {"torch.nn.utils.parametrizations._WeightNorm", classes::identity().bases});
    m.child("padding", classes.plain("SamePadLayer"));
    activation(m, "activation", c.conv_act);
}

void encoder_layer(const Wav2Vec2& c, const Config& config, Scope layer) {
    config.require_divides(c.heads, "num_attention_heads", c.hidden, "hidden_size");
    kvqo_attention(layer, "attention", classes.plain("Attention"), c.hidden);
    dropout(layer, "dropout");
    layer_norm(layer, "layer_norm", c.hidden);
    const Scope m = layer.child("feed_forward", classes.plain("FeedForward"));
    dropout(m, "intermediate_dropout");
    linear(m, "intermediate_dense", c.hidden, c.intermediate, true);
    activation(m, "intermediate_act_fn", c.act);
    linear(m, "output_dense", c.intermediate, c.hidden, true);
    dropout(m, "output_dropout");
    layer_norm(layer, "final_layer_norm", c.hidden);
    const std::optional<std::int64_t> adapter = config.optional_size("adapter_attn_dim");
    if (c.stable_layer_norm && adapter) {
        const Scope a = layer.child("adapter_layer", classes.plain("AttnAdapterLayer"));
        layer_norm(a, "norm", c.hidden);
        linear(a, "linear_1", c.hidden, *adapter, true);
        activation(a, "act_fn", "relu");
        linear(a, "linear_2", *adapter, c.hidden, true);
    }
}

void encoder(const Wav2Vec2& c, const Config& config, Scope model) {
    const std::string kind = c.stable_layer_norm ? "StableLayerNorm" : "";
    const Scope m = model.child("encoder", classes.plain("Encoder" + kind));
    position_convolution(c, config, m);
    layer_norm(m, "layer_norm", c.hidden);
    dropout(m, "dropout");
    repeat(m, "layers", c.layers, classes.layer("EncoderLayer" + kind),
           [&](Scope layer, std::int64_t /*index*/) { encoder_layer(c, config, layer); });
}

void adapter(const Wav2Vec2& c, const Config& config, Scope model) {
    const Scope m = model.child("adapter", classes.plain("Adapter"));
    if (c.output != c.hidden) {
        linear(m, "proj", c.hidden, c.output, true);
        layer_norm(m, "proj_layer_norm", c.output);
    }
    const std::int64_t kernel = whole(config, {"adapter_kernel_size"}, 3);
    repeat(
        m, "layers", whole_count(config, {"num_adapter_layers"}, 3), classes.plain("AdapterLayer"),
        [&](Scope layer, std::int64_t /*index*/) { conv1d(layer, "conv", c.output, 2 * c.output, kernel); });
}

Wav2Vec2 backbone(const Config& config, const Place& place) {
    Wav2Vec2 c(config);
    const Scope model = place.create(classes.pretrained("Model"));
    if (config.number("mask_time_prob", 0.05) > 0.0 || config.number("mask_feature_prob", 0.0) > 0.0) {
        model.parameter("masked_spec_embed", {c.hidden});
    }
    feature_encoder(c, config, model);
    feature_projection(c, model);
    encoder(c, config, model);
    if (c.adapter) {
        adapter(c, config, model);
    }
    return c;
}

void ctc(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForCTC"));
    const Wav2Vec2 c = backbone(config, Place(root, "wav2vec2"));
    dropout(root, "dropout");
    linear(root, "lm_head", c.adapter ? c.output : c.hidden, whole(config, {"vocab_size"}, 32), true);
}

void pretraining(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForPreTraining"));
    const Wav2Vec2 c = backbone(config, Place(root, "wav2vec2"));
    dropout(root, "dropout_features");
    const std::int64_t groups = whole(config, {"num_codevector_groups"}, 2);
    const std::int64_t entries = config.product(groups, whole(config, {"num_codevectors_per_group"}, 320));
    const std::int64_t width = whole(config, {"codevector_dim"}, 256);
    config.require_divides(groups, "num_codevector_groups", width, "codevector_dim");
    const Scope quantizer = root.child("quantizer", classes.plain("GumbelVectorQuantizer"));
    quantizer.parameter("codevectors", {1, entries, width / groups},
                        DType::float32);  // a FloatTensor by name
    linear(quantizer, "weight_proj", c.conv_width.back(), entries, true);
    const std::int64_t projected = whole(config, {"proj_codevector_dim"}, 256);
    linear(root, "project_hid", c.hidden, projected, true);
    linear(root, "project_q", width, projected, true);
}

void refuse_adapter(const Wav2Vec2& c, const Config& config) {
    if (c.adapter) {
        config.refuse("add_adapter", "this classifier does not take an adapter");
    }
}

void sequence_classification(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForSequenceClassification"));
    const Wav2Vec2 c = backbone(config, Place(root, "wav2vec2"));
    refuse_adapter(c, config);
    weighted_layer_sum(root, config, c.layers);
    const std::int64_t projected = whole(config, {"classifier_proj_size"}, 256);
    linear(root, "projector", c.hidden, projected, true);
    linear(root, "classifier", projected, num_labels(config), true);
}

void frame_classification(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForAudioFrameClassification"));
    const Wav2Vec2 c = backbone(config, Place(root, "wav2vec2"));
    refuse_adapter(c, config);
    weighted_layer_sum(root, config, c.layers);
    linear(root, "classifier", c.hidden, num_labels(config), true);
}

void x_vector(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForXVector"));
    const Wav2Vec2 c = backbone(config, Place(root, "wav2vec2"));
    weighted_layer_sum(root, config, c.layers);
    const std::vector<std::int64_t> width = config.sizes("tdnn_dim", {512, 512, 512, 512, 1500});
    const std::vector<std::int64_t> kernel = config.sizes("tdnn_kernel", {5, 3, 3, 1, 1});
    const std::size_t dilations = config.sizes("tdnn_dilation", {1, 2, 3, 1, 1}).size();
    if (width.empty() || kernel.size() < width.size() || dilations < width.size()) {
        config.refuse("tdnn_dim", "tdnn_kernel and tdnn_dilation need an entry for each of its entries");
    }
    linear(root, "projector", c.hidden, width.front(), true);
    const Scope layers = module_list(root, "tdnn");
    for (std::size_t i = 0; i < width.size(); ++i) {
        const Scope layer = layers.child(std::to_string(i), classes.space.plain("TDNNLayer"));
        linear(layer, "kernel", config.product(width[i == 0 ? 0 : i - 1], kernel[i]), width[i], true);
        activation(layer, "activation", "relu");
    }
    const std::int64_t output = whole(config, {"xvector_output_dim"}, 512);
    linear(root, "feature_extractor", 2 * width.back(), output, true);
    linear(root, "classifier", output, output, true);
    const Scope objective = root.child("objective", classes.space.plain("AMSoftmaxLoss"));
    objective.parameter("weight", {output, num_labels(config)});
    objective.child("loss", {"torch.nn.modules.loss.CrossEntropyLoss",
                             {"torch.nn.modules.loss._WeightedLoss", "torch.nn.modules.loss._Loss",
                              "torch.nn.modules.module.Module"}});
}

constexpr std::array<std::string_view, 1> model_types{"wav2vec2"};
constexpr std::array architectures{
    Architecture{"Wav2Vec2ForCTC", ctc},
    Architecture{"Wav2Vec2Model", [](const Config& config, const Place& place) { backbone(config, place); }},
    Architecture{"Wav2Vec2ForPreTraining", pretraining},
    Architecture{"Wav2Vec2ForSequenceClassification", sequence_classification},
    Architecture{"Wav2Vec2ForAudioFrameClassification", frame_classification},
    Architecture{"Wav2Vec2ForXVector", x_vector},
};

}  // namespace

extern const FamilyInfo wav2vec2;
constinit const FamilyInfo wav2vec2{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "Wav2Vec2Model",
    .no_split_classes = {},
    .longest_sequence = [](const Config&) { return std::optional<std::int64_t>{}; },
};

}  // namespace fsdplan::builtin::family
