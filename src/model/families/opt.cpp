#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.opt.modeling_opt", "OPTPreTrainedModel"};

constexpr std::int64_t position_offset = 2;  // rows that the first checkpoints kept for padding
constexpr std::int64_t default_positions = 2048;

struct Sizes {
    std::int64_t vocab, positions, hidden, inner, layers, heads, word_width;
    std::string act;
    bool final_norm, bias, affine;
};

Sizes sizes_of(const Config& config) {
    const std::int64_t hidden = whole(config, {"hidden_size"}, 768);
    return {
        .vocab = whole(config, {"vocab_size"}, 50272),
        .positions = whole(config, {"max_position_embeddings"}, default_positions),
        .hidden = hidden,
        .inner = whole(config, {"ffn_dim"}, 3072),
        .layers = whole_count(config, {"num_hidden_layers"}, 12),
        .heads = whole(config, {"num_attention_heads"}, 12),
        .word_width = config.optional_size("word_embed_proj_dim").value_or(hidden),
        .act = config.text("activation_function", "relu"),
        .final_norm =
            config.flag("do_layer_norm_before", true) && !config.flag("_remove_final_layer_norm", false),
        .bias = config.flag("enable_bias", true),
        .affine = config.flag("layer_norm_elementwise_affine", true),
    };
}

void add_norm(Scope parent, std::string name, const Sizes& s) {
    if (s.affine) {
        layer_norm(parent, std::move(name), s.hidden);
    } else {
        parent.child(std::move(name), classes::layer_norm());
    }
}

void fill_layer(Scope layer, const Sizes& s) {
    const Scope attention = layer.child("self_attn", space.plain("OPTAttention"));
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
        linear(attention, name, s.hidden, s.hidden, s.bias);
    }
    activation(layer, "activation_fn", s.act);
    add_norm(layer, "self_attn_layer_norm", s);
    linear(layer, "fc1", s.hidden, s.inner, s.bias);
    linear(layer, "fc2", s.inner, s.hidden, s.bias);
    add_norm(layer, "final_layer_norm", s);
}

Backbone describe(const Config& config) {
    const Sizes s = sizes_of(config);
    check_layers(config, s.layers);
    check_padding(config, 1, s.vocab);
    if (s.layers > 0) {
        config.require_divides(s.heads, "num_attention_heads", s.hidden, "hidden_size");
    }
    const auto build = [s](Scope model) {
        const Scope decoder = model.child("decoder", space.pretrained("OPTDecoder"));
        const Scope tokens = embedding(decoder, "embed_tokens", s.vocab, s.word_width);
        decoder.child("embed_positions", space.derived("OPTLearnedPositionalEmbedding", classes::embedding()))
            .parameter("weight", {s.positions + position_offset, s.hidden});
        if (s.word_width != s.hidden) {
            linear(decoder, "project_out", s.hidden, s.word_width, false);
            linear(decoder, "project_in", s.word_width, s.hidden, false);
        }
        if (s.final_norm) {
            add_norm(decoder, "final_layer_norm", s);
        }
        repeat(decoder, "layers", s.layers, space.layer("OPTDecoderLayer"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, s); });
        return tokens;
    };
    return {.build = build,
            .vocab = s.vocab,
            .width = s.word_width,
            .tied = config.flag("tie_word_embeddings", true)};
}

// The table of positions is part of the model, so its default counts too.
std::optional<std::int64_t> longest_sequence(const Config& config) {
    return sizes_of(config).positions;
}

constexpr std::array heads{
    Head{"OPTForCausalLM", HeadKind::causal_lm},
    Head{"OPTForSequenceClassification", HeadKind::sequence_classifier},
    Head{"OPTForQuestionAnswering", HeadKind::question_answering},
};
constexpr DecoderFamily decoder_family{space, "OPTModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"opt"};
constexpr std::array<std::string_view, 1> no_split{"OPTDecoderLayer"};

}  // namespace

extern const FamilyInfo opt;
constinit const FamilyInfo opt{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_sequence,
};

}  // namespace fsdplan::builtin::family
