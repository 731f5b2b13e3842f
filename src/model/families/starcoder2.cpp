#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{
    {"transformers.models.starcoder2.modeling_starcoder2", "Starcoder2PreTrainedModel"}, "Starcoder2"};

constexpr DecoderDefaults defaults{
    .vocab_size = 49152,
    .hidden_size = 3072,
    .intermediate_size = 12288,
    .num_hidden_layers = 30,
    .num_attention_heads = 24,
    .num_key_value_heads = 2,
    .head_dim_may_be_null = true,
    .act = "gelu_pytorch_tanh",
    .tie_word_embeddings = true,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    const bool bias = config.flag("use_bias", true);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { attention_projections(attention, s, bias, bias); };
    parts.feed_forward = [=](Scope layer, std::int64_t) {
        const Scope mlp = layer.child("mlp", classes.plain("MLP"));
        linear(mlp, "c_fc", s.hidden, s.intermediate, bias);
        linear(mlp, "c_proj", s.intermediate, s.hidden, bias);
        activation(mlp, "act", s.act);
    };
    parts.torch_norms = true;
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Starcoder2ForCausalLM", HeadKind::causal_lm},
    Head{"Starcoder2ForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"Starcoder2ForTokenClassification", HeadKind::generic_token_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "Starcoder2Model", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"starcoder2"};
constexpr std::array<std::string_view, 1> no_split{"Starcoder2DecoderLayer"};

}  // namespace

extern const FamilyInfo starcoder2;
constinit const FamilyInfo starcoder2{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
