#include <algorithm>
#include <array>
#include <cctype>

#include "model/bert_encoder.hpp"
#include "model/config_fields.hpp"
#include "model/heads.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{
    {"transformers.models.deberta_v2.modeling_deberta_v2", "DebertaV2PreTrainedModel"}, "DebertaV2"};

// "p2c|c2p" means two; spaces and letter case do not count.
std::vector<std::string> split_by_bar(const std::string& text) {
    std::vector<std::string> parts(1);
    for (const char c : text) {
        if (c == '|') {
            parts.emplace_back();
        } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
            parts.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        }
    }
    return parts;
}

// A list, or one string with bars.
std::vector<std::string> position_attention(const Config& config) {
    const std::optional<json::Value> types = config.value().find("pos_att_type");
    return types && types->is_string() ? split_by_bar(config.text("pos_att_type", ""))
                                       : config.strings("pos_att_type");
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

struct Deberta {
    explicit Deberta(const Config& c)
        : hidden(whole(c, {"hidden_size"}, 1536)),
          embedding(c.optional_size("embedding_size").value_or(hidden)),
          intermediate(whole(c, {"intermediate_size"}, 6144)),
          layers(whole_count(c, {"num_hidden_layers"}, 24)),
          heads(whole(c, {"num_attention_heads"}, 24)),
          attention(c.product(heads, c.optional_size("attention_head_size").value_or(hidden / heads))),
          vocab(whole(c, {"vocab_size"}, 128100)),
          positions(whole(c, {"max_position_embeddings"}, 512)),
          types(whole(c, {"type_vocab_size"}, 0, 0)),
          pooler(c.optional_size("pooler_hidden_size").value_or(hidden)),
          act(c.text("hidden_act", "gelu")),
          relative(c.flag("relative_attention", false)),
          shared_keys(c.flag("share_att_key", false)),
          biased_input(c.flag("position_biased_input", true)),
          legacy(c.flag("legacy", true)),
          tied(c.flag("tie_word_embeddings", true)),
          position_types(position_attention(c)) {
        check_padding(c, 0, vocab);
    }

    std::int64_t hidden, embedding, intermediate, layers, heads, attention, vocab, positions, types, pooler;
    std::string act;
    bool relative, shared_keys, biased_input, legacy, tied;
    std::vector<std::string> position_types;
};

void embeddings(const Deberta& c, Scope model) {
    const Scope m = model.child("embeddings", classes.plain("Embeddings"));
    embedding(m, "word_embeddings", c.vocab, c.embedding);
    if (c.biased_input) {
        embedding(m, "position_embeddings", c.positions, c.embedding);
    }
    if (c.types > 0) {
        embedding(m, "token_type_embeddings", c.types, c.embedding);
    }
    if (c.embedding != c.hidden) {
        linear(m, "embed_proj", c.embedding, c.hidden, false);
    }
    layer_norm(m, "LayerNorm", c.hidden);
    dropout(m, "dropout");
    m.buffer("position_ids", {1, c.positions}, DType::int64, false);
}

void attention(const Deberta& c, Scope layer) {
    const Scope m = layer.child("attention", classes.plain("Attention"));
    const Scope self = m.child("self", classes.space.plain("DisentangledSelfAttention"));
    linear(self, "query_proj", c.hidden, c.attention, true);
    linear(self, "key_proj", c.hidden, c.attention, true);
    linear(self, "value_proj", c.hidden, c.attention, true);
    if (c.relative) {
        dropout(self, "pos_dropout");
        if (!c.shared_keys && contains(c.position_types, "c2p")) {
            linear(self, "pos_key_proj", c.hidden, c.attention, true);
        }
        if (!c.shared_keys && contains(c.position_types, "p2c")) {
            linear(self, "pos_query_proj", c.hidden, c.attention, true);
        }
    }
    dropout(self, "dropout");
    bert_output(m, classes.plain("SelfOutput"), c.hidden, c.hidden);
}

// Distances in both directions: buckets of them, or all up to the longest.
std::int64_t distances(const Deberta& c, const Config& config) {
    const std::int64_t buckets = config.integer("position_buckets", -1);
    const std::int64_t longest = config.integer("max_relative_positions", -1);
    return 2 * (buckets > 0 ? buckets : longest > 0 ? longest : c.positions);
}

void convolution(const Deberta& c, const Config& config, Scope encoder) {
    const std::int64_t kernel = config.integer("conv_kernel_size", 0);
    if (kernel <= 0) {
        return;
    }
    const std::int64_t groups = whole(config, {"conv_groups"}, 1);
    config.require_divides(groups, "conv_groups", c.hidden, "hidden_size");
    const Scope m = encoder.child("conv", classes.space.plain("ConvLayer"));
    conv1d(m, "conv", c.hidden / groups, c.hidden, kernel);
    layer_norm(m, "LayerNorm", c.hidden);
    dropout(m, "dropout");
}

Scope backbone(const Deberta& c, const Config& config, const Place& place) {
    const Scope model = place.create(classes.pretrained("Model"));
    embeddings(c, model);
    const Scope encoder = model.child("encoder", classes.plain("Encoder"));
    repeat(encoder, "layer", c.layers, classes.layer("Layer"), [&](Scope layer, std::int64_t /*index*/) {
        config.require_divides(c.heads, "num_attention_heads", c.hidden, "hidden_size");
        attention(c, layer);
        bert_feed_forward(layer, classes, c.hidden, c.intermediate, c.act);
    });
    if (c.relative) {
        embedding(encoder, "rel_embeddings", distances(c, config), c.hidden);
    }
    if (contains(split_by_bar(config.text("norm_rel_ebd", "none")), "layer_norm")) {
        layer_norm(encoder, "LayerNorm", c.hidden);
    }
    convolution(c, config, encoder);
    return model;
}

void prediction_transform(Scope parent, const Deberta& c, std::int64_t width) {
    linear(parent, "dense", c.hidden, width, true);
    activation(parent, "transform_act_fn", c.act);
    layer_norm(parent, "LayerNorm", width);
}

void masked_lm(const Config& config, const Place& place) {
    const Deberta c(config);
    const Scope root = place.create(classes.pretrained("ForMaskedLM"));
    const Scope model = backbone(c, config, Place(root, "deberta"));
    if (!c.legacy) {  // multiplies by the embedding itself: nothing to tie
        const Scope head = root.child("lm_predictions", classes.plain("OnlyMLMHead"))
                               .child("lm_head", classes.plain("LMPredictionHead"));
        head.parameter("bias", {c.vocab});
        prediction_transform(head, c, c.hidden);
        return;
    }
    const Scope head = root.child("cls", classes.space.plain("LegacyDebertaV2OnlyMLMHead"))
                           .child("predictions", classes.space.plain("LegacyDebertaV2LMPredictionHead"));
    head.parameter("bias", {c.vocab});
    prediction_transform(
        head.child("transform", classes.space.plain("LegacyDebertaV2PredictionHeadTransform")), c,
        c.embedding);
    const Scope decoder = linear(head, "decoder", c.embedding, c.vocab, true);
    if (c.tied) {
        decoder.tie("bias", head, "bias");
        decoder.tie("weight", model["embeddings"]["word_embeddings"], "weight");
    }
}

// The classifier reads hidden_size states whatever the pooler's width is.
void pooled_classifier(const Config& config, Scope root, std::int64_t labels) {
    const Deberta c(config);
    backbone(c, config, Place(root, "deberta"));
    const Scope pooler = root.child("pooler", classes.space.plain("ContextPooler"));
    linear(pooler, "dense", c.pooler, c.pooler, true);
    dropout(pooler, "dropout");
    linear(root, "classifier", c.hidden, labels, true);
    dropout(root, "dropout");
}

void sequence_classification(const Config& config, const Place& place) {
    pooled_classifier(config, place.create(classes.pretrained("ForSequenceClassification")),
                      num_labels(config));
}

void multiple_choice(const Config& config, const Place& place) {
    pooled_classifier(config, place.create(classes.pretrained("ForMultipleChoice")), 1);
}

void token_classification(const Config& config, const Place& place) {
    const Deberta c(config);
    const Scope root = place.create(classes.pretrained("ForTokenClassification"));
    backbone(c, config, Place(root, "deberta"));
    dropout(root, "dropout");
    linear(root, "classifier", c.hidden, num_labels(config), true);
}

void question_answering(const Config& config, const Place& place) {
    const Deberta c(config);
    const Scope root = place.create(classes.pretrained("ForQuestionAnswering"));
    backbone(c, config, Place(root, "deberta"));
    linear(root, "qa_outputs", c.hidden, num_labels(config), true);
}

constexpr std::array<std::string_view, 1> model_types{"deberta-v2"};
constexpr std::array architectures{
    Architecture{"DebertaV2ForMaskedLM", masked_lm},
    Architecture{"DebertaV2Model",
                 [](const Config& config, const Place& place) { backbone(Deberta(config), config, place); }},
    Architecture{"DebertaV2ForSequenceClassification", sequence_classification},
    Architecture{"DebertaV2ForTokenClassification", token_classification},
    Architecture{"DebertaV2ForQuestionAnswering", question_answering},
    Architecture{"DebertaV2ForMultipleChoice", multiple_choice},
};

}  // namespace

extern const FamilyInfo deberta_v2;
constinit const FamilyInfo deberta_v2{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "DebertaV2Model",
    .no_split_classes = {},
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
