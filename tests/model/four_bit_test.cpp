#include "model/four_bit.hpp"

#include <gtest/gtest.h>

#include "fsdplan/operators.hpp"
#include "model/importer.hpp"
#include "operators/playback.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t width = 64;
constexpr std::int64_t inner = 128;

ModelGraph llama() {
    return read_hf_config(
        R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
                             "num_hidden_layers": 2, "num_attention_heads": 4, "dtype": "bfloat16"})",
        "config.json", {});
}

ModelGraph adapted() {
    return with_lora(llama(), {.rank = 4, .targets = {"q_proj"}, .autocast_adapter_dtype = false});
}

std::int64_t bytes_of_tensors(const ModelGraph& graph) {
    std::int64_t bytes = 0;
    for (const Tensor& tensor : graph.tensors) {
        bytes += bytes_of(tensor.numel, tensor.dtype).count;
    }
    return bytes;
}

TEST(FourBitWeights, TakeAQuarterOfBfloat16AndTheirScales) {
    const std::int64_t a_layer = 4 * width * width + 3 * width * inner;
    const std::int64_t saved = 2 * a_layer * 3 / 2;  // of two layers: 2 bytes become a half
    // Seven weights a layer, each with a byte for 64 weights and four for 256 such bytes, one at least.
    const std::int64_t scales = 2 * (a_layer / 64 + 28);
    const ModelGraph before = adapted();
    EXPECT_EQ(bytes_of_tensors(before) -
                  bytes_of_tensors(with_four_bit_weights(before, "lm_head", DType::bfloat16)),
              saved - scales);
}

TEST(FourBitWeights, LeaveTrainableLayersAlone) {
    const ModelGraph before = llama();
    EXPECT_EQ(bytes_of_tensors(with_four_bit_weights(before, "lm_head", DType::bfloat16)),
              bytes_of_tensors(before));
}

TEST(FourBitWeights, AreUnpackedInBothDirections) {
    const ModelGraph model = with_four_bit_weights(adapted(), "lm_head", DType::bfloat16);
    const ModuleTree tree = flatten(model);
    const OperatorGraph graph = model.operators(tree, {.batch = 1, .sequence = 8});
    EXPECT_EQ(first_fault(graph), "");
    std::int64_t forward = 0;
    std::int64_t backward = 0;
    for (const auto* events : {&graph.forward, &graph.backward}) {
        for (const MemoryEvent& event : *events) {
            if (event.kind != MemoryEvent::Kind::run) {
                continue;
            }
            const Operator& op = graph.operators[static_cast<std::size_t>(event.index)];
            if (graph.names[static_cast<std::size_t>(op.name)] == "dequantize_4bit") {
                ++(events == &graph.forward ? forward : backward);
            }
        }
    }
    EXPECT_EQ(forward, 14);
    // Nothing below the first layer's q_proj, k_proj and v_proj wants a gradient.
    EXPECT_EQ(backward, 11);
}

TEST(ShiftedLoss, KeepsARowLessOfEachSequence) {
    const ModelGraph model = llama();
    const ModuleTree tree = flatten(model);
    const auto kept = [&](Loss::Kind loss) {
        const OperatorGraph graph =
            model.operators(tree, {.batch = 2, .sequence = 8, .loss = {.kind = loss}});
        EXPECT_EQ(first_fault(graph), "");
        Playback playback(graph, tree, 1);
        playback.play(graph.forward);
        return playback.live();
    };
    // The log-softmax in float32, and the label of each row.
    EXPECT_EQ(kept(Loss::Kind::cross_entropy) - kept(Loss::Kind::shifted), 2 * (256 * 4 + 8));
}

}  // namespace
}  // namespace fsdplan
