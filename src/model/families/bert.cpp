#include <array>

#include "model/bert_encoder.hpp"
#include "model/heads.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr BertFamily family{
    .classes = {{"transformers.models.bert.modeling_bert", "BertPreTrainedModel"}, "Bert"},
    .slot = "bert",
    .vocab = 30522,
    .pad = 0,
    .padded_positions = false,
    .head_first = false,
};
constexpr const PrefixedClasses& classes = family.classes;

Scope backbone(const Config& config, Scope root, bool pooler) {
    return bert_backbone(family, config, Place(root, "bert"), pooler);
}

// The "predictions" part of a head; ties its output layer to the embedding.
void predictions(const Config& config, Scope head, Scope model) {
    const BertSizes c(family, config);
    const Scope m = head.child("predictions", classes.plain("LMPredictionHead"));
    m.parameter("bias", {c.vocab});
    const Scope transform = m.child("transform", classes.plain("PredictionHeadTransform"));
    linear(transform, "dense", c.hidden, c.hidden, true);
    activation(transform, "transform_act_fn", c.act);
    layer_norm(transform, "LayerNorm", c.hidden);
    const Scope decoder = linear(m, "decoder", c.hidden, c.vocab, true);
    if (c.tied) {
        decoder.tie("weight", model["embeddings"]["word_embeddings"], "weight");
        decoder.tie("bias", m, "bias");
    }
}

void with_lm_head(const Config& config, Scope root) {
    const Scope model = backbone(config, root, false);
    predictions(config, root.child("cls", classes.plain("OnlyMLMHead")), model);
}

void masked_lm(const Config& config, const Place& place) {
    with_lm_head(config, place.create(classes.pretrained("ForMaskedLM")));
}

void causal_lm(const Config& config, const Place& place) {
    with_lm_head(config, place.create(classes.generative("LMHeadModel")));
}

void pretraining(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForPreTraining"));
    const Scope model = backbone(config, root, true);
    const Scope head = root.child("cls", classes.plain("PreTrainingHeads"));
    predictions(config, head, model);
    linear(head, "seq_relationship", BertSizes(family, config).hidden, 2, true);
}

void next_sentence_prediction(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForNextSentencePrediction"));
    backbone(config, root, true);
    const Scope head = root.child("cls", classes.plain("OnlyNSPHead"));
    linear(head, "seq_relationship", BertSizes(family, config).hidden, 2, true);
}

void sequence_classification(const Config& config, const Place& place) {
    const Scope root = place.create(classes.pretrained("ForSequenceClassification"));
    backbone(config, root, true);
    dropout(root, "dropout");
    linear(root, "classifier", BertSizes(family, config).hidden, num_labels(config), true);
}

constexpr std::array<std::string_view, 1> model_types{"bert"};
constexpr std::array<std::string_view, 2> no_split{"BertEmbeddings", "BertLayer"};
constexpr std::array architectures{
    Architecture{"BertForMaskedLM", masked_lm},
    Architecture{"BertModel", built_for<family, bert_model>},
    Architecture{"BertForPreTraining", pretraining},
    Architecture{"BertLMHeadModel", causal_lm},
    Architecture{"BertForNextSentencePrediction", next_sentence_prediction},
    Architecture{"BertForSequenceClassification", sequence_classification},
    Architecture{"BertForMultipleChoice", built_for<family, bert_for_multiple_choice>},
    Architecture{"BertForTokenClassification", built_for<family, bert_for_token_classification>},
    Architecture{"BertForQuestionAnswering", built_for<family, bert_for_question_answering>},
};

}  // namespace

extern const FamilyInfo bert;
constinit const FamilyInfo bert{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "BertModel",
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .forward = bert_forward<family>,
};

}  // namespace fsdplan::builtin::family
