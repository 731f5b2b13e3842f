#include <array>

#include "model/config_fields.hpp"
#include "model/heads.hpp"
#include "model/seq2seq.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr Seq2SeqFamily family{
    .classes = {{"transformers.models.bart.modeling_bart", "BartPreTrainedModel"}, "Bart"},
    .key_bias = true,
    .width = 1024,
    .layers = 12,
    .heads = 16,
    .feed_forward = 4096,
    .vocab = 50265,
    .pad = 1,
};
constexpr const PrefixedClasses& classes = family.classes;
constexpr std::int64_t position_offset = 2;  // rows that fairseq left for padding
constexpr std::int64_t default_labels = 3;

Scope word_embedding(const Config& config, const Seq2SeqSizes& c, Scope parent, std::string name) {
    check_padding(config, family.pad, c.vocab);
    return embedding(parent, std::move(name), classes.derived("ScaledWordEmbedding", classes::embedding()),
                     c.vocab, c.width);
}

void position_embedding(const Config& config, const Seq2SeqSizes& c, Scope parent) {
    embedding(parent, "embed_positions", classes.derived("LearnedPositionalEmbedding", classes::embedding()),
              whole(config, {"max_position_embeddings"}, 1024) + position_offset, c.width);
}

Scope encoder(const Config& config, Scope model) {
    const Seq2SeqSizes c(family, config);
    const Scope m = model.child("encoder", classes.pretrained("Encoder"));
    word_embedding(config, c, m, "embed_tokens");
    position_embedding(config, c, m);
    seq2seq_encoder_layers(family, config, m);
    layer_norm(m, "layernorm_embedding", c.width);
    return m;
}

Scope decoder(const Config& config, Scope model) {
    const Seq2SeqSizes c(family, config);
    const Scope m = model.child("decoder", classes.pretrained("Decoder"));
    word_embedding(config, c, m, "embed_tokens");
    position_embedding(config, c, m);
    seq2seq_decoder_layers(family, config, m);
    layer_norm(m, "layernorm_embedding", c.width);
    return m;
}

Scope backbone(const Config& config, const Place& place) {
    const Seq2SeqSizes c(family, config);
    const Scope model = place.create(classes.pretrained("Model"));
    const Scope shared = word_embedding(config, c, model, "shared");
    for (const Scope part : {encoder(config, model), decoder(config, model)}) {
        if (c.tied) {
            part["embed_tokens"].tie("weight", shared, "weight");
        }
    }
    return model;
}

void conditional_generation(const Config& config, const Place& place) {
    const Seq2SeqSizes c(family, config);
    const Scope root = place.create(classes.generative("ForConditionalGeneration"));
    const Scope model = backbone(config, Place(root, "model"));
    root.buffer("final_logits_bias", {1, c.vocab});
    const Scope head = linear(root, "lm_head", c.width, c.vocab, false);
    if (c.tied) {
        head.tie("weight", model["shared"], "weight");
    }
}

void causal_lm(const Config& config, const Place& place) {
    const Seq2SeqSizes c(family, config);
    const Scope root = place.create(classes.generative("ForCausalLM"));
    const Scope model = decoder(config, root.child("model", classes.pretrained("DecoderWrapper")));
    const Scope head = linear(root, "lm_head", c.width, c.vocab, false);
    if (c.tied) {
        head.tie("weight", model["embed_tokens"], "weight");
    }
}

void sequence_classification(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForSequenceClassification"));
    backbone(config, Place(root, "model"));
    dense_head(root, "classification_head", classes.plain("ClassificationHead"),
               Seq2SeqSizes(family, config).width, num_labels(config, default_labels));
}

void question_answering(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForQuestionAnswering"));
    backbone(config, Place(root, "model"));
    linear(root, "qa_outputs", Seq2SeqSizes(family, config).width, 2, true);  // whatever num_labels says
}

constexpr std::array<std::string_view, 1> model_types{"bart"};
constexpr std::array<std::string_view, 2> no_split{"BartEncoderLayer", "BartDecoderLayer"};
constexpr std::array architectures{
    Architecture{"BartForConditionalGeneration", conditional_generation},
    Architecture{"BartModel", [](const Config& config, const Place& place) { backbone(config, place); }},
    Architecture{"BartForSequenceClassification", sequence_classification},
    Architecture{"BartForQuestionAnswering", question_answering},
    Architecture{"BartForCausalLM", causal_lm},
};

}  // namespace

extern const FamilyInfo bart;
constinit const FamilyInfo bart{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "BartModel",
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
