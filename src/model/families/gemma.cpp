#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.gemma.modeling_gemma", "GemmaPreTrainedModel"},
                                  "Gemma"};

constexpr DecoderDefaults defaults{
    .vocab_size = 256000,
    .hidden_size = 3072,
    .intermediate_size = 24576,
    .num_hidden_layers = 28,
    .num_attention_heads = 16,
    .num_key_value_heads = 16,
    .head_dim = 256,
    .head_dim_when_absent = HeadDim::given,
    .pad_token_id = 0,
    .act = "gelu_pytorch_tanh",
    .tie_word_embeddings = true,
};

Backbone describe(const Config& config) {
    DecoderSizes sizes = decoder_sizes(config, defaults);
    if (sizes.act == "gelu") {
        sizes.act = defaults.act;  // the first releases said "gelu" and meant its tanh form
    }
    const DecoderSizes s = sizes;
    const bool bias = config.flag("attention_bias", false);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { attention_projections(attention, s, bias, bias); };
    parts.embedding = [=](Scope model) { return scaled_embedding(model, classes, s); };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"GemmaForCausalLM", HeadKind::causal_lm},
    Head{"GemmaForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"GemmaForTokenClassification", HeadKind::generic_token_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "GemmaModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"gemma"};
constexpr std::array<std::string_view, 1> no_split{"GemmaDecoderLayer"};

}  // namespace

extern const FamilyInfo gemma;
constinit const FamilyInfo gemma{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .ties_by_default = defaults.tie_word_embeddings,
};

}  // namespace fsdplan::builtin::family
