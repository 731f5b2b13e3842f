#include <gtest/gtest.h>

#include <ostream>

#include "fsdplan/operators.hpp"
#include "model/importer.hpp"
#include "operators/playback.hpp"
#include "operators/reduction.hpp"

// Tiny models of each family against real steps of them, recorded from PyTorch 2.13.0 and transformers 5.24.0
// on CUDA's caching allocator in bfloat16, batch 2. Numbers are of allocations of 8 KiB and more, gradients
// of parameters included; without the column buffer of a convolution, which cuDNN does not need. T5 is short
// enough for an embedding's backward not to sort.
namespace fsdplan {
namespace {

struct Memory {
    std::int64_t allocations = 0;
    std::int64_t after_forward = 0;
    std::int64_t peak = 0;
    std::int64_t after_backward = 0;

    friend bool operator==(const Memory&, const Memory&) = default;
    // NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name
    friend void PrintTo(const Memory& m, std::ostream* out) {
        *out << m.allocations << " allocations, " << m.after_forward << " after forward, peak " << m.peak
             << ", " << m.after_backward << " after backward";
    }
};

/// A model and what its real step took.
struct Step {
    const char* name;
    const char* keys;  ///< of config.json
    std::int64_t sequence = 64;
    std::optional<std::int64_t> target_sequence = {};
    Memory memory;
};

Memory memory_of(const Step& step) {
    constexpr std::int64_t least_bytes = 8192;
    const std::string config = std::string("{\"dtype\": \"bfloat16\", ") + step.keys + "}";
    const ModelGraph model = read_hf_config(config, "config.json", {});
    const ModuleTree tree = flatten(model);
    const OperatorGraph graph = model.operators(
        tree, {.batch = 2, .sequence = step.sequence, .target_sequence = step.target_sequence});
    EXPECT_EQ(first_fault(graph), "");
    EXPECT_TRUE(graph.notes.empty());
    Playback playback(graph, tree, least_bytes);
    Memory memory;
    playback.play(graph.forward);
    memory.after_forward = playback.live();
    playback.play(graph.backward);
    memory.allocations = playback.allocations();
    memory.peak = playback.peak();
    memory.after_backward = playback.live();
    return memory;
}

class Forward : public testing::TestWithParam<Step> {};

TEST_P(Forward, IsItsRealStep) {
    EXPECT_EQ(memory_of(GetParam()), GetParam().memory);
}

constexpr Step steps[] = {
    Step{
        .name = "Gpt2",
        .keys =
            R"("model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 1000, "use_cache": false, "bos_token_id": 1, "eos_token_id": 2)",
        .memory = {.allocations = 114, .after_forward = 4476928, .peak = 5500928, .after_backward = 4182016}},
    Step{
        .name = "GptNeoX",
        .keys =
            R"("model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "use_cache": false)",
        .memory = {.allocations = 124, .after_forward = 2740224, .peak = 3919872, .after_backward = 3645440}},
    Step{
        .name = "GptNeoXWithoutParallelResidual",
        .keys =
            R"("model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "use_parallel_residual": false, "hidden_dropout": 0.1, "use_cache": false)",
        .memory = {.allocations = 137, .after_forward = 3035136, .peak = 4059136, .after_backward = 3645440}},
    Step{
        .name = "Bert",
        .keys =
            R"("model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000)",
        .memory = {.allocations = 101, .after_forward = 2582528, .peak = 4550656, .after_backward = 3526656}},
    Step{
        .name = "BertOfSequences",
        .keys =
            R"("model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000)",
        .memory = {.allocations = 89, .after_forward = 2129920, .peak = 3592192, .after_backward = 3526656}},
    Step{
        .name = "BertOfTokens",
        .keys =
            R"("model_type": "bert", "architectures": ["BertForTokenClassification"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000)",
        .memory = {.allocations = 91, .after_forward = 2162688, .peak = 3461120, .after_backward = 3395584}},
    Step{
        .name = "Roberta",
        .keys =
            R"("model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "bos_token_id": 0, "eos_token_id": 2)",
        .memory = {.allocations = 100, .after_forward = 2582528, .peak = 4550656, .after_backward = 3526656}},
    Step{
        .name = "RobertaOfSequences",
        .keys =
            R"("model_type": "roberta", "architectures": ["RobertaForSequenceClassification"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "bos_token_id": 0, "eos_token_id": 2)",
        .memory = {.allocations = 88, .after_forward = 2064384, .peak = 3592192, .after_backward = 3526656}},
    Step{
        .name = "T5",
        .keys =
            R"("model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 256, "d_ff": 768, "d_kv": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 1000, "decoder_start_token_id": 0, "use_cache": false, "tie_word_embeddings": true)",
        .sequence = 48,
        .target_sequence = 32,
        .memory = {.allocations = 454, .after_forward = 5086208, .peak = 7768064, .after_backward = 6803456}},
    Step{
        .name = "T5WithGates",
        .keys =
            R"("model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 256, "d_ff": 768, "d_kv": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 1000, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false, "use_cache": false)",
        .sequence = 48,
        .target_sequence = 32,
        .memory =
            {.allocations = 540, .after_forward = 7543808, .peak = 10029056, .after_backward = 8376320}},
    Step{
        .name = "Vit",
        .keys =
            R"("model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8, "num_labels": 10)",
        .memory = {.allocations = 73, .after_forward = 522240, .peak = 2762240, .after_backward = 2728448}},
    Step{
        .name = "Opt",
        .keys =
            R"("model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 256, "ffn_dim": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "word_embed_proj_dim": 256, "use_cache": false)",
        .memory = {.allocations = 100, .after_forward = 2215936, .peak = 5207040, .after_backward = 4183040}},
    Step{
        .name = "OptWithNormsBehindAndProjections",
        .keys =
            R"("model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 256, "ffn_dim": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "word_embed_proj_dim": 128, "do_layer_norm_before": false, "use_cache": false)",
        .memory = {.allocations = 100, .after_forward = 2215936, .peak = 4570112, .after_backward = 4058112}},
};
INSTANTIATE_TEST_SUITE_P(Recorded, Forward, testing::ValuesIn(steps),
                         [](const testing::TestParamInfo<Step>& step) { return step.param.name; });

TEST(Forwards, SaysNothingOfWhatItDoesNotKnow) {
    const ModelGraph model = read_hf_config(
        R"({"model_type": "gpt2", "architectures": ["GPT2ForTokenClassification"]})", "config.json", {});
    EXPECT_TRUE(model.operators(flatten(model), {}).operators.empty());
}

TEST(Forwards, SplitsASumOverManyRows) {
    // 16,448 rows of 1,280 columns, as recorded: 212 blocks for each column, of which 32 lanes keep 4 floats.
    EXPECT_EQ(sum_scratch_bytes(16448, 1280, 132), 4LL * 1280 * 212 * 32 * 4);
    EXPECT_EQ(sum_scratch_bytes(16448, 5120, 132), 4LL * 5120 * 53 * 32 * 4);
    EXPECT_EQ(sum_scratch_bytes(128, 1280, 132), 0);
}

}  // namespace
}  // namespace fsdplan
