#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.bloom.modeling_bloom", "BloomPreTrainedModel"};

void fill_layer(Scope layer, std::int64_t hidden) {
    layer_norm(layer, "input_layernorm", hidden);
    const Scope attention = layer.child("self_attention", space.plain("BloomAttention"));
    linear(attention, "query_key_value", hidden, 3 * hidden, true);
    linear(attention, "dense", hidden, hidden, true);
    dropout(attention, "attention_dropout");
    layer_norm(layer, "post_attention_layernorm", hidden);
    const Scope mlp = layer.child("mlp", space.plain("BloomMLP"));
    linear(mlp, "dense_h_to_4h", hidden, 4 * hidden, true);
    mlp.child("gelu_impl", space.plain("BloomGelu"));
    linear(mlp, "dense_4h_to_h", 4 * hidden, hidden, true);
}

Backbone describe(const Config& config) {
    const std::int64_t vocab = whole(config, {"vocab_size"}, 250880);
    const std::int64_t hidden = config.size({"n_embed", "hidden_size"}, 64);
    const std::int64_t layers = whole_count(config, {"num_hidden_layers", "n_layer"}, 2);
    const std::int64_t heads = whole(config, {"num_attention_heads", "n_head"}, 8);
    check_layers(config, layers);
    if (layers > 0) {
        config.require_divides(heads, "n_head", hidden, "hidden_size");
    }
    const auto build = [=](Scope model) {
        const Scope tokens = embedding(model, "word_embeddings", vocab, hidden);
        layer_norm(model, "word_embeddings_layernorm", hidden);
        repeat(model, "h", layers, space.layer("BloomBlock"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, hidden); });
        layer_norm(model, "ln_f", hidden);
        return tokens;
    };
    return {
        .build = build, .vocab = vocab, .width = hidden, .tied = config.flag("tie_word_embeddings", true)};
}

// ALiBi sets no limit; the released files name the length of training.
std::optional<std::int64_t> longest_sequence(const Config& config) {
    return config.optional_size("seq_length");
}

constexpr std::array heads{
    Head{"BloomForCausalLM", HeadKind::causal_lm, "transformer"},
    Head{"BloomForSequenceClassification", HeadKind::sequence_classifier, "transformer"},
    Head{"BloomForTokenClassification", HeadKind::token_classifier, "transformer"},
    Head{"BloomForQuestionAnswering", HeadKind::question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{space, "BloomModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"bloom"};
constexpr std::array<std::string_view, 1> no_split{"BloomBlock"};

}  // namespace

extern const FamilyInfo bloom;
constinit const FamilyInfo bloom{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_sequence,
};

}  // namespace fsdplan::builtin::family
