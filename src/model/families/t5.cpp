#include "operators/t5.hpp"

#include <array>

#include "model/config_fields.hpp"
#include "model/family.hpp"
#include "model/heads.hpp"
#include "operators/language_model.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.t5.modeling_t5", "T5PreTrainedModel"}, "T5"};

struct T5 {
    explicit T5(const Config& c);

    std::int64_t width, feed_forward, layers, decoder_layers, heads, inner, buckets, vocab;
    std::string act;
    bool gated;
};

struct FeedForward {
    std::string act;
    bool gated;
};

// "relu", "gated-silu", …; "gated-gelu" stands for the approximation that T5 v1.1 was trained with.
FeedForward feed_forward_of(const Config& c) {
    const std::string text = c.text("feed_forward_proj", "relu");
    const std::size_t dash = text.find('-');
    const std::string first = text.substr(0, dash);
    if (dash != std::string::npos && (first != "gated" || text.find('-', dash + 1) != std::string::npos)) {
        c.refuse("feed_forward_proj", json::quote(text) + " is neither an activation nor \"gated-\" and one");
    }
    FeedForward out;
    out.gated = c.flag("is_gated_act", first == "gated");
    out.act = text == "gated-gelu" ? "gelu_new" : dash == std::string::npos ? text : text.substr(dash + 1);
    out.act = c.text("dense_act_fn", out.act);
    return out;
}

// The standard names (hidden_size …) are set last in transformers and so count more than the family's own;
// the decoder's default depth is taken before that.
T5::T5(const Config& c)
    : width(whole(c, {"hidden_size", "d_model"}, 512)),
      feed_forward(whole(c, {"d_ff"}, 2048)),
      layers(whole_count(c, {"num_hidden_layers", "num_layers"}, 6)),
      decoder_layers(c.has("num_decoder_layers") ? whole_count(c, {"num_decoder_layers"}, 6)
                                                 : whole_count(c, {"num_layers"}, 6)),
      heads(whole(c, {"num_attention_heads", "num_heads"}, 8)),
      inner(c.product(heads, whole(c, {"head_dim", "d_kv"}, 64))),
      buckets(whole(c, {"relative_attention_num_buckets"}, 32)),
      vocab(whole(c, {"vocab_size"}, 32128)),
      act(feed_forward_of(c).act),
      gated(feed_forward_of(c).gated) {}

void norm_and_dropout(const T5& c, Scope parent) {
    weight_norm(parent, "layer_norm", classes.plain("LayerNorm"), c.width);
    dropout(parent, "dropout");
}

// Only the first layer of a stack holds the position table; the others use it too.
void attention(const T5& c, Scope parent, std::string name, bool position_table) {
    const Scope m = parent.child(std::move(name), classes.plain("Attention"));
    linear(m, "q", c.width, c.inner, false);
    linear(m, "k", c.width, c.inner, false);
    linear(m, "v", c.width, c.inner, false);
    linear(m, "o", c.inner, c.width, false);
    if (position_table) {
        embedding(m, "relative_attention_bias", c.buckets, c.heads);
    }
}

void feed_forward(const T5& c, Scope parent) {
    const Scope m =
        parent.child("DenseReluDense", classes.plain(c.gated ? "DenseGatedActDense" : "DenseActDense"));
    if (c.gated) {
        linear(m, "wi_0", c.width, c.feed_forward, false);
        linear(m, "wi_1", c.width, c.feed_forward, false);
    } else {
        linear(m, "wi", c.width, c.feed_forward, false);
    }
    linear(m, "wo", c.feed_forward, c.width, false);
    dropout(m, "dropout");
    activation(m, "act", c.act);
}

void fill_block(const T5& c, Scope block, std::int64_t index, bool decoder) {
    const Scope layer = module_list(block, "layer");
    const Scope self = layer.child("0", classes.plain("LayerSelfAttention"));
    attention(c, self, "SelfAttention", index == 0);
    norm_and_dropout(c, self);
    if (decoder) {
        const Scope cross = layer.child("1", classes.plain("LayerCrossAttention"));
        attention(c, cross, "EncDecAttention", false);
        norm_and_dropout(c, cross);
    }
    const Scope last = layer.child(decoder ? "2" : "1", classes.plain("LayerFF"));
    feed_forward(c, last);
    norm_and_dropout(c, last);
}

// transformers 5 ties the tables of all stacks, whatever tie_word_embeddings says.
void stack(const T5& c, Scope model, std::string name, std::int64_t blocks, bool decoder) {
    const Scope m = model.child(std::move(name), classes.pretrained("Stack"));
    embedding(m, "embed_tokens", c.vocab, c.width).tie("weight", model["shared"], "weight");
    repeat(m, "block", blocks, classes.layer("Block"),
           [&](Scope layer, std::int64_t index) { fill_block(c, layer, index, decoder); });
    weight_norm(m, "final_layer_norm", classes.plain("LayerNorm"), c.width);
    dropout(m, "dropout");
}

void both_stacks(const T5& c, Scope model) {
    embedding(model, "shared", c.vocab, c.width);
    stack(c, model, "encoder", c.layers, false);
    stack(c, model, "decoder", c.decoder_layers, true);
}

void backbone(const Config& config, const Place& place) {
    both_stacks(T5(config), place.create(classes.pretrained("Model")));
}

void encoder_model(const Config& config, const Place& place) {
    const T5 c(config);
    const Scope model = place.create(classes.pretrained("EncoderModel"));
    embedding(model, "shared", c.vocab, c.width);
    stack(c, model, "encoder", c.layers, config.flag("is_decoder", false));
}

void conditional_generation(const Config& config, const Place& place) {
    const T5 c(config);
    const Scope root = place.create(classes.generative("ForConditionalGeneration"));
    both_stacks(c, root);
    linear(root, "lm_head", c.width, c.vocab, false).tie("weight", root["shared"], "weight");
}

void sequence_classification(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForSequenceClassification"));
    backbone(config, Place(root, "transformer"));
    dense_head(root, "classification_head", classes.plain("ClassificationHead"), T5(config).width,
               num_labels(config));
}

void token_classification(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForTokenClassification"));
    encoder_model(config, Place(root, "transformer"));
    dropout(root, "dropout");
    linear(root, "classifier", T5(config).width, num_labels(config), true);
}

void question_answering(const Config& config, const Place& place) {
    const T5 c(config);
    const Scope root = place.create(classes.pretrained("ForQuestionAnswering"));
    both_stacks(c, root);
    linear(root, "qa_outputs", c.width, num_labels(config), true);
}

Value forward(const Config& config, Eager& f, ModuleIndex top) {
    if (short_name(f.tree().class_info(top).name) != classes.full("ForConditionalGeneration") ||
        f.workload().attention != AttentionImplementation::sdpa || f.workload().loss.in_pieces()) {
        return {};
    }
    const T5 c(config);
    const t5::Sizes sizes{.heads = c.heads, .act = c.act, .dropout = config.number("dropout_rate", 0.1)};
    const Value ids = token_ids(f);
    return f.call(top, {&ids}, [&] {
        if (f.parameter(layer::child(f, top, "lm_head"), "weight").dtype() == DType::float16) {
            f.note("what T5 does to keep float16 from overflowing is left out");
        }
        const Value encoded = t5::stack(f, layer::child(f, top, "encoder"), ids, {}, sizes);
        const std::int64_t length = f.workload().target_sequence.value_or(f.workload().sequence);
        const Value targets = f.run("new_zeros", {{ids.size(0), length}, DType::int64}, {});
        const Value decoded = t5::stack(f, layer::child(f, top, "decoder"), targets, encoded, sizes);
        const bool scaled = config.flag("tie_word_embeddings", true);
        const Value output = scaled ? op::mul_scalar(f, decoded) : decoded;
        const Value logits = layer::linear(f, layer::child(f, top, "lm_head"), output);
        f.use_as(logits, Storage::Use::logits);
        return token_loss(f, logits);
    });
}

constexpr std::array<std::string_view, 1> model_types{"t5"};
constexpr std::array<std::string_view, 1> no_split{"T5Block"};
constexpr std::array architectures{
    Architecture{"T5ForConditionalGeneration", conditional_generation},
    Architecture{"T5Model", backbone},
    Architecture{"T5EncoderModel", encoder_model},
    Architecture{"T5ForSequenceClassification", sequence_classification},
    Architecture{"T5ForTokenClassification", token_classification},
    Architecture{"T5ForQuestionAnswering", question_answering},
};

}  // namespace

extern const FamilyInfo t5;
constinit const FamilyInfo t5{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "T5Model",
    .no_split_classes = no_split,
    // Positions are relative; the length it was trained with is all that a file can name.
    .longest_sequence = [](const Config& config) { return config.optional_size("n_positions"); },
    .forward = forward,
};

}  // namespace fsdplan::builtin::family
