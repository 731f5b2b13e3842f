#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/importer.hpp"
#include "support/tree_listing.hpp"

// What a reader of config.json can get wrong, on configurations small enough to follow by hand. That the
// trees are right in general is compared with transformers itself (tests/live/compare_families.py).
namespace fsdplan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ModelGraph build(const std::string& keys) {
    return read_hf_config("{" + keys + "}", "config.json", {});
}

std::vector<std::string> lines(const std::string& keys) {
    return tree_listing(build(keys));
}

std::string refusal(const std::string& keys) {
    try {
        build(keys);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

const std::string tiny_llama =
    R"("model_type": "llama", "vocab_size": 10, "hidden_size": 8, "intermediate_size": 12,
       "num_hidden_layers": 1, "num_attention_heads": 2)";
const std::string tiny_mistral =
    R"("model_type": "mistral", "vocab_size": 10, "hidden_size": 8, "intermediate_size": 12,
       "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1)";

TEST(DecoderFamily, BuildsItsFirstArchitectureWhenTheFileNamesNone) {
    EXPECT_THAT(lines(tiny_llama), Contains(StartsWith("lm_head torch.nn.modules.linear.Linear")));
}

TEST(DecoderFamily, BuildsTheBareBackbone) {
    const std::vector<std::string> tree = lines(tiny_llama + R"(, "architectures": ["LlamaModel"])");
    EXPECT_THAT(tree, Contains("embed_tokens.weight parameter float32 [10,8,]"));
    EXPECT_THAT(tree, Not(Contains(StartsWith("lm_head"))));
}

TEST(DecoderFamily, TiesTheHeadToTheEmbedding) {
    EXPECT_THAT(lines(tiny_llama + R"(, "tie_word_embeddings": true)"),
                Contains("lm_head.weight parameter = model.embed_tokens.weight"));
}

TEST(DecoderFamily, KeepsTheHeadApartByDefaultInLlama) {
    EXPECT_THAT(lines(tiny_llama), Contains("lm_head.weight parameter float32 [10,8,]"));
}

TEST(DecoderFamily, CountsTheLabelsOfAClassifier) {
    const std::string classifier = tiny_llama + R"(, "architectures": ["LlamaForSequenceClassification"])";
    EXPECT_THAT(lines(classifier), Contains("score.weight parameter float32 [2,8,]"));
    EXPECT_THAT(lines(classifier + R"(, "id2label": {"0": "a", "1": "b", "2": "c"})"),
                Contains("score.weight parameter float32 [3,8,]"));
    EXPECT_THAT(lines(classifier + R"(, "id2label": {"0": "a"}, "num_labels": 5)"),
                Contains("score.weight parameter float32 [5,8,]"));
}

TEST(DecoderFamily, ReadsEitherSpellingOfASize) {
    EXPECT_THAT(lines(R"("model_type": "gpt2", "hidden_size": 8, "num_attention_heads": 2, "n_layer": 1)"),
                Contains("transformer.h.0.attn.c_attn.weight parameter float32 [8,24,]"));
    EXPECT_THAT(lines(R"("model_type": "gpt2", "n_embd": 8, "n_head": 2, "num_hidden_layers": 1)"),
                Contains("transformer.h.0.attn.c_attn.weight parameter float32 [8,24,]"));
}

TEST(DecoderFamily, TellsAbsentKeyValueHeadsFromNull) {
    // Mistral's default is 8 heads; qwen2 takes null for "as many as heads".
    const std::string qwen2 =
        R"("model_type": "qwen2", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1,
           "num_attention_heads": 2, "head_dim": 4)";
    EXPECT_THAT(lines(qwen2), Contains("model.layers.0.self_attn.k_proj.bias parameter float32 [128,]"));
    EXPECT_THAT(lines(qwen2 + R"(, "num_key_value_heads": null)"),
                Contains("model.layers.0.self_attn.k_proj.bias parameter float32 [8,]"));
    EXPECT_EQ(refusal(R"("model_type": "mistral", "num_key_value_heads": null)"),
              "config.json#/num_key_value_heads: expected an integer, found null");
}

TEST(DecoderFamily, KeepsRoutersOfDeepSeekInFloat32) {
    const std::vector<std::string> tree = lines(
        R"("model_type": "deepseek_v3", "dtype": "bfloat16", "hidden_size": 8, "num_attention_heads": 2,
           "num_hidden_layers": 1, "first_k_dense_replace": 0, "n_routed_experts": 4)");
    EXPECT_THAT(tree, Contains("model.layers.0.mlp.gate.weight parameter float32 [4,8,]"));
    EXPECT_THAT(tree, Contains("model.layers.0.mlp.gate.e_score_correction_bias buffer float32 frozen [4,]"));
    EXPECT_THAT(tree, Contains("model.layers.0.mlp.experts.down_proj parameter bfloat16 [4,8,2048,]"));
}

TEST(DecoderFamily, MakesSparseOnlyTheLayersThatTheFileSaysAreSparse) {
    // Layers 1 and 3 are every second; layer 3 is named dense.
    const std::vector<std::string> tree =
        lines(R"("model_type": "qwen3_moe", "hidden_size": 8, "num_attention_heads": 2, "head_dim": 4,
                 "num_hidden_layers": 4, "num_experts": 2, "decoder_sparse_step": 2, "mlp_only_layers": [3])");
    EXPECT_EQ(std::ranges::count_if(
                  tree, [](const std::string& line) { return line.find("SparseMoeBlock") != line.npos; }),
              1);
    EXPECT_THAT(tree, Contains(StartsWith("model.layers.1.mlp.gate ")));
}

TEST(DecoderFamily, RefusesHeadsThatDoNotDivideTheWidth) {
    EXPECT_EQ(refusal(R"("model_type": "llama", "hidden_size": 10, "num_attention_heads": 4)"),
              "config.json#/hidden_size: 10 is not a multiple of num_attention_heads 4");
}

TEST(DecoderFamily, RefusesAPaddingTokenOutsideTheVocabulary) {
    EXPECT_EQ(refusal(R"("model_type": "phi3", "vocab_size": 100)"),
              "config.json: pad_token_id: the embedding has no row 32000 for padding: vocab_size is 100");
}

TEST(DecoderFamily, RefusesLayerTypesOfAnotherLength) {
    EXPECT_EQ(refusal(tiny_mistral + R"(, "layer_types": ["full_attention"])"),
              "config.json#/layer_types: expected one entry for each of the 2 layers (num_hidden_layers), "
              "found 1");
}

TEST(DecoderFamily, RefusesSizesWhoseProductHasNoMeaning) {
    EXPECT_THAT(refusal(R"("model_type": "mistral", "num_attention_heads": 1000000000000,
                           "hidden_size": 1000000000000, "head_dim": 1000000000000)"),
                StartsWith("config.json"));
}

TEST(DecoderFamily, NamesTheNearestActivation) {
    EXPECT_THAT(refusal(tiny_llama + R"(, "hidden_act": "sillu")"), HasSubstr("did you mean \"silu\""));
}

TEST(RotaryEmbedding, RoundsHalfOfWhatItRotatesUp) {
    // phi rotates 0.4 of 12: 4 elements with 2 frequencies; olmo2 lets a head of 5 pass: 3 frequencies.
    EXPECT_THAT(lines(R"("model_type": "phi", "hidden_size": 24, "num_attention_heads": 2,
                         "num_hidden_layers": 0, "partial_rotary_factor": 0.4)"),
                Contains("model.rotary_emb.inv_freq buffer non-persistent float32 frozen [2,]"));
    EXPECT_THAT(lines(R"("model_type": "olmo2", "hidden_size": 10, "num_attention_heads": 2,
                         "num_hidden_layers": 0)"),
                Contains("model.rotary_emb.inv_freq buffer non-persistent float32 frozen [3,]"));
}

TEST(RotaryEmbedding, RotatesAPartOnlyWhereTheFamilyOrTheTypeDoes) {
    const std::string part = tiny_llama + R"(, "partial_rotary_factor": 0.5)";
    EXPECT_THAT(lines(part), Contains("model.rotary_emb.inv_freq buffer non-persistent float32 frozen [2,]"));
    EXPECT_THAT(lines(part + R"(, "rope_scaling": {"rope_type": "linear", "factor": 2.0})"),
                Contains("model.rotary_emb.inv_freq buffer non-persistent float32 frozen [1,]"));
}

TEST(RotaryEmbedding, RefusesTypesThatAreUnknownOrIncomplete) {
    EXPECT_EQ(refusal(tiny_llama + R"(, "rope_scaling": {"type": "linnear", "factor": 2.0})"),
              "config.json#/rope_scaling/type: unknown type of rotary embedding \"linnear\"; did you mean "
              "\"linear\"?");
    EXPECT_EQ(refusal(tiny_llama + R"(, "rope_scaling": {"rope_type": "linear"})"),
              "config.json#/rope_scaling/rope_type: the type \"linear\" needs the key \"factor\"");
}

TEST(RotaryEmbedding, HasFrequenciesForEachKindOfAttentionInGemma3) {
    const std::string gemma3 =
        R"("model_type": "gemma3_text", "hidden_size": 8, "num_attention_heads": 2, "head_dim": 8,
           "num_hidden_layers": 2)";
    // By default every sixth layer sees everything, so none of two does.
    EXPECT_THAT(lines(gemma3), Not(Contains(HasSubstr("full_attention_inv_freq"))));
    EXPECT_THAT(
        lines(gemma3 + R"(, "sliding_window_pattern": 2)"),
        Contains("model.rotary_emb.full_attention_inv_freq buffer non-persistent float32 frozen [4,]"));
}

}  // namespace
}  // namespace fsdplan
