#include <set>

#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.gemma3.modeling_gemma3", "Gemma3PreTrainedModel"},
                                  "Gemma3"};

constexpr DecoderDefaults defaults{
    .vocab_size = 262208,
    .hidden_size = 2304,
    .intermediate_size = 9216,
    .num_hidden_layers = 26,
    .num_attention_heads = 8,
    .num_key_value_heads = 4,
    .head_dim = 256,
    .head_dim_when_absent = HeadDim::given,
    .pad_token_id = 0,
    .act_key = "hidden_activation",
    .act = "gelu_pytorch_tanh",
    .tie_word_embeddings = true,
    .rope = std::nullopt,
};

constexpr std::string_view full_attention = "full_attention";
constexpr std::string_view sliding_attention = "sliding_attention";
constexpr RopeRules rope_rules{.partial_key = ""};  // there is no key beside rope_parameters

// Kinds of attention among the layers, in alphabetical order: each has frequencies of its own.
std::set<std::string> kinds_of_attention(const Config& config, std::int64_t layers) {
    if (config.has("layer_types")) {
        const std::vector<std::string> types = layer_types(config, layers);
        return {types.begin(), types.end()};
    }
    const std::int64_t pattern = whole(config, {"sliding_window_pattern"}, 6);
    std::set<std::string> kinds;
    for (std::int64_t i = 0; i < layers; ++i) {
        kinds.emplace((i + 1) % pattern != 0 ? sliding_attention : full_attention);
    }
    return kinds;
}

std::vector<AttentionKind> rotary_of_each(const Config& config, const DecoderSizes& s) {
    const std::optional<Config> parameters = config.nested("rope_parameters");
    if (parameters && config.has("rope_scaling") && !parameters->has(full_attention)) {
        config.refuse("rope_scaling",
                      "there are rope_parameters, but none for " + json::quote(full_attention));
    }
    std::vector<AttentionKind> out;
    for (const std::string& kind : kinds_of_attention(config, s.layers)) {
        if (kind != full_attention && kind != sliding_attention && !(parameters && parameters->has(kind))) {
            config.refuse("layer_types", "no rope_parameters for " + json::quote(kind));
        }
        out.push_back({kind, rotary_width(config, rope_of_kind(config, kind, kind == full_attention),
                                          rope_rules, s.head_dim, HeadDim::given)});
    }
    return out;
}

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    config.require_divides(s.heads, "num_attention_heads", s.hidden, "hidden_size");
    const bool bias = config.flag("attention_bias", false);
    const std::vector<AttentionKind> kinds = rotary_of_each(config, s);
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        attention_projections(attention, s, bias, bias);
        query_key_norms(attention, classes, s.head_dim, s.head_dim);
    };
    parts.layer_norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                         "post_feedforward_layernorm"};
    parts.embedding = [=](Scope model) { return scaled_embedding(model, classes, s); };
    parts.tail = [=](Scope model) {
        weight_norm(model, "norm", classes.plain("RMSNorm"), s.hidden);
        rotary_embedding(model, "rotary_emb", classes.plain("RotaryEmbedding"), kinds);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Gemma3ForCausalLM", HeadKind::causal_lm},
    Head{"Gemma3TextForSequenceClassification", HeadKind::generic_sequence_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "Gemma3TextModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"gemma3_text"};
constexpr std::array<std::string_view, 1> no_split{"Gemma3DecoderLayer"};

}  // namespace

extern const FamilyInfo gemma3_text;
constinit const FamilyInfo gemma3_text{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .ties_by_default = defaults.tie_word_embeddings,
};

}  // namespace fsdplan::builtin::family
