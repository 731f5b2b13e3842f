#include <gtest/gtest.h>

#include <algorithm>

#include "fsdplan/operators.hpp"
#include "model/importer.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t batch = 2;
constexpr std::int64_t sequence = 64;
constexpr std::int64_t vocabulary = 4096;

/// `text`: sizes far below those of the logits.
class LossInPieces : public testing::TestWithParam<const char*> {};

// A family that describes its own loss must not answer for another one.
TEST_P(LossInPieces, HasNoWholeLogitsOrNoDescription) {
    const ModelGraph model = read_hf_config(GetParam(), "config.json", {.dtype = DType::bfloat16});
    const ModuleTree tree = flatten(model);
    const auto largest = [&](Loss loss) {
        const OperatorGraph graph =
            model.operators(tree, {.batch = batch, .sequence = sequence, .loss = loss});
        std::int64_t bytes = 0;
        for (const Storage& storage : graph.storages) {
            bytes = std::max(bytes, storage.use == Storage::Use::logits ? storage.bytes : 0);
        }
        return bytes;
    };
    constexpr std::int64_t whole = batch * sequence * vocabulary * 2;
    EXPECT_GE(largest({}), whole);
    EXPECT_LE(largest({.kind = Loss::Kind::chunked, .chunks = 4}), whole / 2);
    EXPECT_LE(largest({.kind = Loss::Kind::fused, .chunks = 4}), whole / 2);
    EXPECT_LE(largest({.kind = Loss::Kind::cut}), whole / 2);
}

INSTANTIATE_TEST_SUITE_P(
    Families, LossInPieces,
    testing::Values(
        R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
            "num_attention_heads": 4, "vocab_size": 4096})",
        R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 4096,
            "architectures": ["GPT2LMHeadModel"]})",
        R"({"model_type": "opt", "hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 1,
            "num_attention_heads": 4, "vocab_size": 4096, "word_embed_proj_dim": 64,
            "architectures": ["OPTForCausalLM"]})",
        R"({"model_type": "bert", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
            "num_attention_heads": 4, "vocab_size": 4096, "architectures": ["BertForMaskedLM"]})",
        R"({"model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 1, "num_heads": 4,
            "vocab_size": 4096, "architectures": ["T5ForConditionalGeneration"]})",
        R"({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 1, "vocab_size": 4096,
            "max_seq_len": 64, "architectures": ["MPTForCausalLM"]})",
        R"({"model_type": "torchtitan_llama", "dim": 64, "n_layers": 1, "n_heads": 4,
            "vocab_size": 4096})"));

}  // namespace
}  // namespace fsdplan
