#include <algorithm>
#include <array>

#include "model/config_fields.hpp"
#include "model/family.hpp"
#include "model/heads.hpp"
#include "model/rope.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{
    {"transformers.models.modernbert.modeling_modernbert", "ModernBertPreTrainedModel"}, "ModernBert"};
constexpr std::string_view full = "full_attention";
constexpr std::string_view sliding = "sliding_attention";

std::vector<std::string> kinds_of_layers(const Config& config, std::int64_t layers) {
    check_layers(config, layers);
    if (config.has("layer_types")) {
        return layer_types(config, layers);
    }
    std::vector<std::string> types;
    const std::int64_t every = whole(config, {"global_attn_every_n_layers"}, 3);
    for (std::int64_t i = 0; i < layers; ++i) {
        types.emplace_back(i % every == 0 ? full : sliding);
    }
    return types;
}

struct ModernBert {
    explicit ModernBert(const Config& c)
        : hidden(whole(c, {"hidden_size"}, 768)),
          intermediate(whole(c, {"intermediate_size"}, 1152)),
          heads(whole(c, {"num_attention_heads"}, 12)),
          vocab(whole(c, {"vocab_size"}, 50368)),
          act(c.text("hidden_activation", "gelu")),
          norm_bias(c.flag("norm_bias", false)),
          attention_bias(c.flag("attention_bias", false)),
          mlp_bias(c.flag("mlp_bias", false)),
          attention_dropout(c.number("attention_dropout", 0.0) > 0.0),
          types(kinds_of_layers(c, whole_count(c, {"num_hidden_layers"}, 22))) {
        check_padding(c, 50283, vocab);
    }

    std::int64_t hidden, intermediate, heads, vocab;
    std::string act;
    bool norm_bias, attention_bias, mlp_bias, attention_dropout;
    std::vector<std::string> types;  ///< one a layer
};

void encoder_layer(const ModernBert& c, Scope layer, std::int64_t index) {
    if (index == 0) {  // the embedding has just been normed
        identity(layer, "attn_norm");
    } else {
        layer_norm(layer, "attn_norm", c.hidden, c.norm_bias);
    }
    const Scope attention = layer.child("attn", classes.plain("Attention"));
    linear(attention, "Wqkv", c.hidden, 3 * c.hidden, c.attention_bias);
    linear(attention, "Wo", c.hidden, c.hidden, c.attention_bias);
    if (c.attention_dropout) {
        dropout(attention, "out_drop");
    } else {
        identity(attention, "out_drop");
    }
    layer_norm(layer, "mlp_norm", c.hidden, c.norm_bias);
    const Scope mlp = layer.child("mlp", classes.plain("MLP"));
    linear(mlp, "Wi", c.hidden, 2 * c.intermediate, c.mlp_bias);
    activation(mlp, "act", c.act);
    dropout(mlp, "drop");
    linear(mlp, "Wo", c.intermediate, c.hidden, c.mlp_bias);
}

// Older files have one rope_scaling for all kinds; it changes what rope_parameters says, so that has to be
// there.
void check_rope(const Config& config) {
    const std::optional<Config> parameters = config.nested("rope_parameters");
    if (!parameters) {
        return;
    }
    parameters->value().allow_only({full, sliding});
    for (const json::Value kind : parameters->value().members()) {
        if (!kind.is_object()) {
            kind.fail("an object");
        }
    }
    if (config.has("rope_scaling") && parameters->value().size() != 2) {
        config.refuse("rope_scaling", "changes rope_parameters, which lacks a kind of attention");
    }
}

// One table of frequencies for each kind of layer that occurs.
std::vector<AttentionKind> rotary_of_each(const ModernBert& c, const Config& config) {
    constexpr RopeRules rules{.partial_key = ""};  // there is no key beside rope_parameters
    const std::int64_t head_dim = config.optional_size("head_dim").value_or(c.hidden / c.heads);
    const HeadDim attribute = config.has("head_dim")        ? HeadDim::given
                              : is_null(config, "head_dim") ? HeadDim::null
                                                            : HeadDim::absent;
    std::vector<AttentionKind> kinds;
    for (const std::string_view kind : {full, sliding}) {
        if (std::ranges::find(c.types, kind) != c.types.end()) {
            const std::string name(kind);
            kinds.push_back(
                {name, rotary_width(config, rope_of_kind(config, name, true), rules, head_dim, attribute)});
        }
    }
    return kinds;
}

Scope backbone(const ModernBert& c, const Config& config, const Place& place) {
    check_rope(config);
    if (c.types.empty()) {
        config.refuse("num_hidden_layers", "rotary embedding needs at least one layer here");
    }
    for (const std::string& type : c.types) {
        if (type != full && type != sliding) {
            config.refuse("layer_types", "unknown kind of layer " + json::quote(type) +
                                             "; expected \"full_attention\" or \"sliding_attention\"");
        }
        config.require_divides(c.heads, "num_attention_heads", c.hidden, "hidden_size");
    }
    const Scope model = place.create(classes.pretrained("Model"));
    const Scope embeddings = model.child("embeddings", classes.plain("Embeddings"));
    embedding(embeddings, "tok_embeddings", c.vocab, c.hidden);
    layer_norm(embeddings, "norm", c.hidden, c.norm_bias);
    dropout(embeddings, "drop");
    repeat(model, "layers", static_cast<std::int64_t>(c.types.size()), classes.layer("EncoderLayer"),
           [&](Scope layer, std::int64_t index) { encoder_layer(c, layer, index); });
    layer_norm(model, "final_norm", c.hidden, c.norm_bias);
    rotary_embedding(model, "rotary_emb", classes.plain("RotaryEmbedding"), rotary_of_each(c, config));
    return model;
}

// Every head has the backbone and a transform in common.
Scope with_transform(const ModernBert& c, const Config& config, Scope root) {
    const Scope model = backbone(c, config, Place(root, "model"));
    const Scope head = root.child("head", classes.plain("PredictionHead"));
    linear(head, "dense", c.hidden, c.hidden, config.flag("classifier_bias", false));
    activation(head, "act", config.text("classifier_activation", "gelu"));
    layer_norm(head, "norm", c.hidden, c.norm_bias);
    return model;
}

void masked_lm(const Config& config, const Place& place) {
    const ModernBert c(config);
    const Scope root = place.create(classes.pretrained("ForMaskedLM"));
    const Scope model = with_transform(c, config, root);
    const Scope decoder = linear(root, "decoder", c.hidden, c.vocab, config.flag("decoder_bias", true));
    if (config.flag("tie_word_embeddings", true)) {
        decoder.tie("weight", model["embeddings"]["tok_embeddings"], "weight");
    }
}

void classifier(const Config& config, Scope root, std::int64_t labels) {
    const ModernBert c(config);
    with_transform(c, config, root);
    dropout(root, "drop");
    linear(root, "classifier", c.hidden, labels, true);
}

void sequence_classification(const Config& config, const Place& place) {
    classifier(config, place.create(classes.pretrained("ForSequenceClassification")), num_labels(config));
}

void token_classification(const Config& config, const Place& place) {
    classifier(config, place.create(classes.pretrained("ForTokenClassification")), num_labels(config));
}

void question_answering(const Config& config, const Place& place) {
    classifier(config, place.create(classes.pretrained("ForQuestionAnswering")), num_labels(config));
}

void multiple_choice(const Config& config, const Place& place) {
    classifier(config, place.create(classes.pretrained("ForMultipleChoice")), 1);
}

constexpr std::array<std::string_view, 1> model_types{"modernbert"};
constexpr std::array<std::string_view, 2> no_split{"ModernBertEmbeddings", "ModernBertEncoderLayer"};
constexpr std::array architectures{
    Architecture{"ModernBertForMaskedLM", masked_lm},
    Architecture{"ModernBertModel", [](const Config& config,
                                       const Place& place) { backbone(ModernBert(config), config, place); }},
    Architecture{"ModernBertForSequenceClassification", sequence_classification},
    Architecture{"ModernBertForTokenClassification", token_classification},
    Architecture{"ModernBertForQuestionAnswering", question_answering},
    Architecture{"ModernBertForMultipleChoice", multiple_choice},
};

}  // namespace

extern const FamilyInfo modernbert;
constinit const FamilyInfo modernbert{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "ModernBertModel",
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
