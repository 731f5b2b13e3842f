#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.gptj.modeling_gptj", "GPTJPreTrainedModel"};

struct Sizes {
    std::int64_t vocab, positions, hidden, layers, heads, inner, rotary;
    std::string act;
};

Sizes sizes_of(const Config& config) {
    const std::int64_t hidden = whole(config, {"hidden_size", "n_embd"}, 4096);
    const std::int64_t rotary = whole(config, {"rotary_dim"}, 64, 0);
    return {
        .vocab = whole(config, {"vocab_size"}, 50400),
        .positions = whole(config, {"max_position_embeddings", "n_positions"}, 2048),
        .hidden = hidden,
        .layers = whole_count(config, {"num_hidden_layers", "n_layer"}, 28),
        .heads = whole(config, {"num_attention_heads", "n_head"}, 16),
        .inner = config.optional_size("n_inner").value_or(4 * hidden),
        .rotary = rotary == 0 ? hidden : rotary,
        .act = config.text("activation_function", "gelu_new"),
    };
}

void fill_layer(Scope layer, const Sizes& s) {
    layer_norm(layer, "ln_1", s.hidden);
    const Scope attention = layer.child("attn", space.plain("GPTJAttention"));
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
        linear(attention, name, s.hidden, s.hidden, false);
    }
    dropout(attention, "resid_dropout");
    const Scope mlp = layer.child("mlp", space.plain("GPTJMLP"));
    linear(mlp, "fc_in", s.hidden, s.inner, true);
    linear(mlp, "fc_out", s.inner, s.hidden, true);
    activation(mlp, "act", s.act);
    dropout(mlp, "dropout");
}

Backbone describe(const Config& config) {
    const Sizes s = sizes_of(config);
    check_layers(config, s.layers);
    if (s.layers > 0) {
        config.require_divides(s.heads, "n_head", s.hidden, "n_embd");
    }
    const auto build = [s](Scope model) {
        const Scope tokens = embedding(model, "wte", s.vocab, s.hidden);
        dropout(model, "drop");
        repeat(model, "h", s.layers, space.layer("GPTJBlock"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, s); });
        layer_norm(model, "ln_f", s.hidden);
        // Sines, then cosines, of every position.
        model.child("rotary_emb", space.plain("GPTJRotaryEmbedding"))
            .buffer("embed_positions", {s.positions, round_up(s.rotary, 2)}, DType::float32, false);
        return tokens;
    };
    return {.build = build,
            .vocab = s.vocab,
            .width = s.hidden,
            .tied = config.flag("tie_word_embeddings", false),
            .head_bias = true};
}

// The table of positions is part of the model, so its default counts too.
std::optional<std::int64_t> longest_sequence(const Config& config) {
    return sizes_of(config).positions;
}

constexpr std::array heads{
    Head{"GPTJForCausalLM", HeadKind::causal_lm, "transformer"},
    Head{"GPTJForSequenceClassification", HeadKind::generic_sequence_classifier, "transformer"},
    Head{"GPTJForQuestionAnswering", HeadKind::generic_question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{space, "GPTJModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"gptj"};
constexpr std::array<std::string_view, 1> no_split{"GPTJBlock"};

}  // namespace

extern const FamilyInfo gptj;
constinit const FamilyInfo gptj{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_sequence,
};

}  // namespace fsdplan::builtin::family
