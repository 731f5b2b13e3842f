#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.olmoe.modeling_olmoe", "OlmoePreTrainedModel"},
                                  "Olmoe"};

constexpr DecoderDefaults defaults{
    .vocab_size = 50304,
    .hidden_size = 2048,
    .intermediate_size = 2048,
    .num_hidden_layers = 16,
    .num_attention_heads = 16,
    .pad_token_id = 1,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    const bool bias = config.flag("attention_bias", false);
    const std::int64_t experts = whole_count(config, {"num_local_experts", "num_experts"}, 64);
    // Unlike the projections, the norms ignore a head_dim of the file.
    const std::int64_t k_norm = checked_mul(s.hidden / s.heads, s.kv_heads, config.value().where());
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        attention_projections(attention, s, bias, bias);
        query_key_norms(attention, classes, s.hidden, k_norm);
    };
    parts.feed_forward = [=](Scope layer, std::int64_t) {
        const Scope moe = layer.child("mlp", classes.plain("SparseMoeBlock"));
        router(moe, "gate", classes.plain("TopKRouter"), s, experts);
        fused_experts(moe, classes, s, experts, s.intermediate);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"OlmoeForCausalLM", HeadKind::causal_lm},
};
constexpr DecoderFamily decoder_family{classes.space, "OlmoeModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"olmoe"};
constexpr std::array<std::string_view, 1> no_split{"OlmoeDecoderLayer"};

}  // namespace

extern const FamilyInfo olmoe;
constinit const FamilyInfo olmoe{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
