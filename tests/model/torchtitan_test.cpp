#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/importer.hpp"

// What torchtitan's own Llama computes is compared with recordings of it (tests/golden/cuda_memory, titan-*).
namespace fsdplan {
namespace {

ModuleTree built(const std::string& keys) {
    return flatten(read_hf_config(R"({"model_type": "torchtitan_llama", )" + keys + "}", "config.json", {}));
}

std::string refusal(const std::string& keys) {
    try {
        built(keys);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

TEST(TorchtitanLlama, WidthsComeFromItsModelArguments) {
    // Two thirds of 4 * 4096 is 10922: up to 11008 as it is, times 1.3 up to 14336. The public sizes follow.
    const std::string llama2 = R"("dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 32000)";
    EXPECT_EQ(built(llama2).numel[0], 6'738'415'616);
    const std::string llama3 = R"("dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8,
        "vocab_size": 128256, "multiple_of": 1024, "ffn_dim_multiplier": 1.3)";
    EXPECT_EQ(built(llama3).numel[0], 8'030'261'248);
}

TEST(TorchtitanLlama, WhatItsCodeCannotBuildIsRefusedByKey) {
    EXPECT_EQ(refusal(R"("ffn_dim_multiplier": -1)"),
              "config.json#/ffn_dim_multiplier: expected a positive number of at most 1000");
    EXPECT_EQ(refusal(R"("dim": 96, "n_heads": 32)"),
              "config.json#/n_heads: leaves each head an odd width; rotary embedding needs pairs");
    EXPECT_EQ(refusal(R"("torchtitan_version": "2023-01")"),
              "config.json#/torchtitan_version: expected \"2024-03\", \"2024-04\" or \"2024-12\", found "
              "\"2023-01\"");
    EXPECT_THAT(refusal(R"("n_heads": 32, "n_kv_heads": 5)"), testing::HasSubstr("n_kv_heads"));
}

}  // namespace
}  // namespace fsdplan
