#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.phi3.modeling_phi3", "Phi3PreTrainedModel"}, "Phi3"};

constexpr DecoderDefaults defaults{
    .vocab_size = 32064,
    .hidden_size = 3072,
    .intermediate_size = 8192,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .pad_token_id = 32000,
    .rope = std::nullopt,
};

constexpr RopeRules rope_rules{.partial_by_default = true};

// This family knows one type of scaling, under three names.
Rope longrope_of(const Config& config) {
    Rope rope = rope_of(config);
    const std::string_view key = rope.with("rope_type") ? "rope_type" : "type";
    if (rope.type == "su" && !rope.with("original_max_position_embeddings")) {
        rope.objects.front().refuse(key,
                                    "the type \"su\" needs the key \"original_max_position_embeddings\"");
    }
    if (rope.type == "su" || rope.type == "yarn") {
        rope.type = "longrope";
    }
    if (rope.type != "default" && rope.type != "longrope") {
        rope.objects.front().refuse(
            key, "expected \"longrope\", the only scaling of phi3, found " + json::quote(rope.type));
    }
    return rope;
}

// transformers counts the factors by the usual head size, whatever the file's head_dim is.
void check_factors(const Config& config, const Rope& rope, const DecoderSizes& s) {
    const double part = partial_factor(config, rope, rope_rules);
    const std::int64_t head_dim = s.hidden / s.heads;
    const std::int64_t expected = static_cast<std::int64_t>(static_cast<double>(head_dim) * part) / 2;
    for (const std::string_view key : {"short_factor", "long_factor"}) {
        const std::optional<Config> at = rope.with(key);
        if (at && at->value().at(key).size() != static_cast<std::size_t>(expected)) {
            at->refuse(key, "expected " + std::to_string(expected) + " factors, found " +
                                std::to_string(at->value().at(key).size()));
        }
    }
}

Backbone describe(const Config& config) {
    DecoderSizes sizes = decoder_sizes(config, defaults);
    const Rope rope = longrope_of(config);
    check_factors(config, rope, sizes);
    sizes.rotary_width = rotary_width(config, rope, rope_rules, sizes.head_dim,
                                      config.has("head_dim") ? HeadDim::given : HeadDim::absent);
    const DecoderSizes s = sizes;
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        linear(attention, "o_proj", s.q_width, s.hidden, false);
        linear(attention, "qkv_proj", s.hidden, s.q_width + 2 * s.kv_width, false);
    };
    parts.feed_forward = [=](Scope layer, std::int64_t) {
        const Scope mlp = layer.child("mlp", classes.plain("MLP"));
        linear(mlp, "gate_up_proj", s.hidden, 2 * s.intermediate, false);
        linear(mlp, "down_proj", s.intermediate, s.hidden, false);
        activation(mlp, "activation_fn", s.act);
    };
    parts.layer_dropouts = {"resid_attn_dropout", "resid_mlp_dropout"};
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Phi3ForCausalLM", HeadKind::causal_lm},
    Head{"Phi3ForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"Phi3ForTokenClassification", HeadKind::generic_token_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "Phi3Model", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"phi3"};
constexpr std::array<std::string_view, 1> no_split{"Phi3DecoderLayer"};

}  // namespace

extern const FamilyInfo phi3;
constinit const FamilyInfo phi3{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
