#include <gtest/gtest.h>

#include "fsdplan/frontend.hpp"

namespace fsdplan {
namespace {

// As recorded in tests/golden/frontends/accelerate: what the models' own methods return.
struct Recorded {
    const char* model;
    const char* input;
    const char* output;
    const char* norm;
    bool tied;
};

std::ostream& operator<<(std::ostream& out, const Recorded& recorded) {
    return out << recorded.model;
}

class Hints : public testing::TestWithParam<Recorded> {};

TEST_P(Hints, AreWhatTheModelSays) {
    const ModelGraph graph =
        import_model(std::string(FSDPLAN_TEST_DATA "/golden/wrap/") + GetParam().model + ".tree.json.gz");
    const ModelHints hints = model_hints(graph, flatten(graph));
    EXPECT_EQ(hints.input_embeddings.value_or("none"), GetParam().input);
    EXPECT_EQ(hints.output_embeddings.value_or("none"), GetParam().output);
    EXPECT_EQ(hints.final_norm.value_or("none"), GetParam().norm);
    EXPECT_EQ(hints.weights_tied, GetParam().tied);
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, Hints,
    testing::Values(
        Recorded{"bert-large-mlm", "bert.embeddings.word_embeddings", "cls.predictions.decoder", "none",
                 true},
        Recorded{"bloom-176b", "transformer.word_embeddings", "lm_head", "transformer.ln_f", true},
        Recorded{"clip-vit-large", "none", "none", "none", false},
        Recorded{"gemma2-9b", "model.embed_tokens", "lm_head", "model.norm", true},
        Recorded{"gpt-neox-20b", "gpt_neox.embed_in", "lm_head", "gpt_neox.final_layer_norm", false},
        Recorded{"gpt2-xl", "transformer.wte", "lm_head", "transformer.ln_f", true},
        Recorded{"llama3-70b", "model.embed_tokens", "lm_head", "model.norm", false},
        Recorded{"mamba-2.8b", "backbone.embeddings", "lm_head", "backbone.norm_f", true},
        Recorded{"t5-large", "shared", "lm_head", "none", true},
        Recorded{"vit-huge", "vit.embeddings.patch_embeddings", "none", "vit.layernorm", false}));

}  // namespace
}  // namespace fsdplan
