#include <gtest/gtest.h>

#include "fsdplan/operators.hpp"
#include "model/importer.hpp"
#include "operators/playback.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t width = 64;
constexpr std::int64_t heads = 4;
constexpr std::int64_t vocabulary = 128;
constexpr std::int64_t batch = 2;
constexpr std::int64_t sequence = 32;

ModelGraph mpt(std::int64_t layers, const std::string& more = "") {
    return read_hf_config(
        R"({"model_type": "mpt", "architectures": ["MPTForCausalLM"], "d_model": 64, "n_heads": 4,
                             "vocab_size": 128, "max_seq_len": 32, "dtype": "bfloat16", "n_layers": )" +
            std::to_string(layers) + more + "}",
        "config.json", {});
}

// llm-foundry's README prints the number of parameters of its models; this is how they come about.
TEST(FoundryMpt, HasBiasesAndLearnedPositions) {
    const std::int64_t layer = 12 * width * width + 13 * width;
    EXPECT_EQ(flatten(mpt(3)).numel[0], 3 * layer + vocabulary * width + sequence * width + 2 * width);
    const std::int64_t without_bias = 12 * width * width + 2 * width;
    EXPECT_EQ(flatten(mpt(3, R"(, "no_bias": true, "attn_config": {"alibi": true})")).numel[0],
              3 * without_bias + vocabulary * width + width);
}

std::int64_t kept(std::int64_t layers) {
    const ModelGraph model = mpt(layers);
    const ModuleTree tree = flatten(model);
    const OperatorGraph graph = model.operators(tree, {.batch = batch, .sequence = sequence});
    EXPECT_EQ(first_fault(graph), "");
    Playback playback(graph, tree, 1);
    playback.play(graph.forward);
    return playback.live();
}

TEST(FoundryMpt, KeepsWhatItsOperatorsKeep) {
    // A layer: input of both norms, their outputs, q, k, v, what flash attention gives and its padded copy: 9
    // widths, and 4 on both sides of GELU. Norms keep mean and scale, attention a sum for each head and once
    // the state of its random numbers.
    const std::int64_t a_token = 34 * width + 16 + 4 * heads;  // two bytes a number, norms and sums four
    EXPECT_EQ(kept(3) - kept(2), batch * sequence * a_token + 24);
}

TEST(FoundryMpt, RefusesOtherModels) {
    EXPECT_THROW(mpt(2, R"(, "attn_config": {"rope": true})"), Error);
    EXPECT_THROW(mpt(2, R"(, "ffn_config": {"ffn_type": "mptgeglu"})"), Error);
    EXPECT_THROW(mpt(2, R"(, "tie_word_embeddings": false)"), Error);
}

}  // namespace
}  // namespace fsdplan
