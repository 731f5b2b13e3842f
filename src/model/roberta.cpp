#include "model/roberta.hpp"

#include "model/heads.hpp"

namespace fsdplan {
namespace {

void with_lm_head(const BertFamily& family, const Config& config, Scope root) {
    const Scope model = bert_with_head(family, config, root, false, [&](const BertSizes& c) {
        const Scope head = root.child("lm_head", family.classes.plain("LMHead"));
        head.parameter("bias", {c.vocab});
        linear(head, "dense", c.hidden, c.hidden, true);
        layer_norm(head, "layer_norm", c.hidden);
        linear(head, "decoder", c.hidden, c.vocab, true);
    });
    if (BertSizes(family, config).tied) {
        const Scope decoder = root["lm_head"]["decoder"];
        decoder.tie("weight", model["embeddings"]["word_embeddings"], "weight");
        decoder.tie("bias", root["lm_head"], "bias");
    }
}

}  // namespace

void roberta_for_masked_lm(const BertFamily& family, const Config& config, const Place& place) {
    with_lm_head(family, config, place.create(family.classes.pretrained("ForMaskedLM")));
}

void roberta_for_causal_lm(const BertFamily& family, const Config& config, const Place& place) {
    with_lm_head(family, config, place.create(family.classes.generative("ForCausalLM")));
}

void roberta_for_sequence_classification(const BertFamily& family, const Config& config, const Place& place) {
    const Scope root = place.create(family.classes.pretrained("ForSequenceClassification"));
    bert_with_head(family, config, root, false, [&](const BertSizes& c) {
        dense_head(root, "classifier", family.classes.plain("ClassificationHead"), c.hidden,
                   num_labels(config));
    });
}

}  // namespace fsdplan
