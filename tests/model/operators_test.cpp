#include "fsdplan/operators.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "operators/attention.hpp"
#include "operators/functional.hpp"

// What models compute and keep, described from a configuration alone, beside what PyTorch recorded.
namespace fsdplan {
namespace {

using Kind = MemoryEvent::Kind;

const std::filesystem::path data = FSDPLAN_TEST_DATA;

struct Described {
    const char* recording;  ///< of tests/golden/runtime
    const char* config;     ///< folder of models/nets
    AttentionImplementation attention = AttentionImplementation::sdpa;
};

nlohmann::json read(const std::filesystem::path& path) {
    std::ifstream file(path);
    return nlohmann::json::parse(file);
}

/// The recordings' models have two layers, in bfloat16.
ModelGraph two_layers(const char* folder) {
    nlohmann::json config = read(data.parent_path() / "models" / "nets" / folder / "config.json");
    for (const char* key : {"num_hidden_layers", "n_layer", "num_layers"}) {
        if (config.contains(key)) {
            config[key] = 2;
        }
    }
    config.erase("layer_types");
    const std::filesystem::path path =
        std::filesystem::path(testing::TempDir()) / (std::string(folder) + "-two-layers.json");
    std::ofstream(path) << config;
    return import_model(path.string(), {.dtype = DType::bfloat16});
}

struct Totals {
    double saved = 0;  ///< bytes, by modules below the root
    double products = 0;
};

Totals totals_of(const OperatorGraph& graph) {
    Totals out;
    std::vector<char> seen(graph.storages.size(), 0);
    std::int32_t call = -1;
    for (const MemoryEvent& event : graph.forward) {
        const auto index = static_cast<std::size_t>(event.index);
        if (event.kind == Kind::run) {
            const Operator& op = graph.operators[index];
            call = op.call;
            out.products += op.kind == Operator::Kind::other ? static_cast<double>(op.flops) : 0;
        } else if (event.kind == Kind::save && seen[index] == 0) {
            seen[index] = 1;
            out.saved += call > 0 ? static_cast<double>(graph.storages[index].bytes) : 0;
        }
    }
    return out;
}

Totals totals_of(const nlohmann::json& recording) {
    Totals out;
    for (const auto& [name, flops] : recording.at("flops_forward").items()) {
        out.products += flops.get<double>();
    }
    for (std::size_t c = 1; c < recording.at("modules").size(); ++c) {
        for (const nlohmann::json& saved : recording.at("modules").at(c).at("saved")) {
            out.saved += saved.at(0) == "new" ? saved.at(3).get<double>() : 0;
        }
    }
    return out;
}

class FromConfiguration : public testing::TestWithParam<Described> {};

TEST_P(FromConfiguration, KeepsAndComputesWhatPyTorchDoes) {
    const nlohmann::json recording =
        read(data / "golden" / "runtime" / (std::string(GetParam().recording) + ".json"));
    const ModelGraph model = two_layers(GetParam().config);
    const ModuleTree tree = flatten(model);
    ASSERT_TRUE(model.operators);
    const OperatorGraph graph =
        model.operators(tree, {.batch = recording.at("case").at("batch").get<std::int64_t>(),
                               .sequence = recording.at("case").at("seq").get<std::int64_t>(),
                               .attention = GetParam().attention});
    EXPECT_EQ(first_fault(graph), "");
    const Totals expected = totals_of(recording);
    const Totals got = totals_of(graph);
    EXPECT_NEAR(got.saved / expected.saved, 1.0, 0.01);
    EXPECT_DOUBLE_EQ(got.products, expected.products);
}

INSTANTIATE_TEST_SUITE_P(Golden, FromConfiguration,
                         testing::Values(Described{"act_llama2-7b_s2048", "meta-llama--Llama-2-7b-hf"},
                                         Described{"act_llama3-8b_s8192", "meta-llama--Meta-Llama-3-8B"},
                                         Described{"act_llama3-8b_b4_s2048", "meta-llama--Meta-Llama-3-8B"},
                                         Described{"act_llama3-70b_s2048", "meta-llama--Meta-Llama-3-70B"},
                                         Described{"act_gemma2-9b_s2048", "google--gemma-2-9b"},
                                         Described{"act_llama3-8b_eager_s2048", "meta-llama--Meta-Llama-3-8B",
                                                   AttentionImplementation::eager}),
                         [](const testing::TestParamInfo<Described>& described) {
                             std::string name = described.param.recording;
                             std::ranges::replace_if(
                                 name, [](char c) { return c == '-' || c == '.'; }, '_');
                             return name;
                         });

Totals with_attention(const ModelGraph& model, AttentionImplementation attention, std::int64_t sequence) {
    const OperatorGraph graph =
        model.operators(flatten(model), {.batch = 1, .sequence = sequence, .attention = attention});
    EXPECT_EQ(first_fault(graph), "");
    return totals_of(graph);
}

// The package keeps one number of its random state less than torch's own kernel: 8 bytes in each layer.
TEST(FlashAttention2, KeepsWhatTorchsFlashKeeps) {
    const ModelGraph model = two_layers("meta-llama--Meta-Llama-3-8B");
    const Totals torchs = with_attention(model, AttentionImplementation::sdpa, 2048);
    const Totals package = with_attention(model, AttentionImplementation::flash_attention_2, 2048);
    EXPECT_EQ(torchs.saved - package.saved, 2 * 8);
    EXPECT_EQ(torchs.products, package.products);
}

// A window is an argument of it: no mask, and heads share keys and values.
TEST(FlashAttention2, NeedsNoMaskForAWindow) {
    const ModelGraph model = two_layers("mistralai--Mistral-7B-v0.1");
    const Totals torchs = with_attention(model, AttentionImplementation::sdpa, 8192);
    const Totals package = with_attention(model, AttentionImplementation::flash_attention_2, 8192);
    // Keys and values for 32 heads instead of 8, of 128 in bfloat16, and the mask's bias.
    EXPECT_GT(torchs.saved - package.saved, 2.0 * 2 * (32 - 8) * 128 * 2 * 8192);
}

TEST(FlashAttention2, RefusesFloat32) {
    const ModelGraph model = two_layers("meta-llama--Meta-Llama-3-8B");
    EXPECT_THROW(model.operators(flatten(model), {.batch = 1,
                                                  .sequence = 128,
                                                  .compute = DType::float32,
                                                  .attention = AttentionImplementation::flash_attention_2}),
                 Error);
}

// An adapter's dropout keeps its mask and hands the low-rank product another input.
TEST(Adapters, DropoutKeepsAMask) {
    const ModelGraph model = two_layers("meta-llama--Meta-Llama-3-8B");
    const auto masks = [&](std::string_view lora) {
        const ModelGraph adapted = with_lora(model, parse_lora(lora));
        const ModuleTree tree = flatten(adapted);
        const OperatorGraph graph = adapted.operators(tree, {.batch = 1, .sequence = 128});
        EXPECT_EQ(first_fault(graph), "");
        return std::ranges::count(graph.names, "native_dropout");
    };
    EXPECT_EQ(masks("r=8,targets=q_proj"), 0);
    EXPECT_EQ(masks("r=8,targets=q_proj,dropout=0.05"), 1);
}

// The symbolic PyTorch under the descriptions.

/// A module with one parameter that is used twice.
ModuleTree tree_with_weight() {
    ModelGraph graph;
    graph.classes.push_back({"torch.nn.modules.linear.Linear", {}});
    graph.modules.push_back({.class_index = ClassIndex{0}, .parameters = {{"weight", TensorIndex{0}}}});
    graph.tensors.push_back({.shape = {8, 8}, .numel = 64});
    return flatten(graph);
}

std::vector<Kind> kinds_of(std::span<const MemoryEvent> events, std::int32_t index) {
    std::vector<Kind> out;
    for (const MemoryEvent& event : events) {
        if (event.kind != Kind::run && event.kind != Kind::gradient && event.index == index) {
            out.push_back(event.kind);
        }
    }
    return out;
}

TEST(Eager, MemoryGoesWithTheLastName) {
    const ModuleTree tree = tree_with_weight();
    Eager f(tree, {});
    const Value loss = f.call(ModuleIndex{0}, {}, [&] {
        Value x = f.run("first", {{4, 8}, DType::float32}, {});
        Value other = x;
        x = op::neg(f, std::move(x));
        other.reset();
        return op::mean_last(f, std::move(x));
    });
    const OperatorGraph graph = f.finish(loss);
    EXPECT_EQ(first_fault(graph), "");
    using enum MemoryEvent::Kind;
    EXPECT_EQ(graph.forward, (std::vector<MemoryEvent>{{allocate, 0},
                                                       {run, 0},
                                                       {allocate, 1},
                                                       {run, 1},
                                                       {drop, 0},
                                                       {allocate, 2},
                                                       {run, 2},
                                                       {drop, 1}}));
}

/// Bytes that attention's backward takes in all storages but the largest of floats.
std::int64_t workspace_bytes(DType dtype, std::int64_t dim) {
    constexpr std::int64_t sequence = 1088;  // no multiple of the larger tile
    const ModuleTree tree = tree_with_weight();
    Eager f(tree, {});
    const Shape shape{1, 4, sequence, dim};
    Value loss = f.call(ModuleIndex{0}, {}, [&] {
        Values all;
        const Value q = f.run("empty", {shape, dtype}, {});
        const Value k = f.run("empty", {shape, dtype}, {});
        const Value v = f.run("empty", {shape, dtype}, {});
        for (const Value* one : {&q, &k, &v}) {
            f.require_gradient(*one);
        }
        return attention::sdpa(f, q, k, v, attention::window_mask(f, sequence), true);
    });
    const OperatorGraph graph = f.finish(std::move(loss));
    std::int64_t bytes = 0;
    for (const MemoryEvent& event : graph.backward) {
        const Storage& storage = graph.storages[static_cast<std::size_t>(event.index)];
        if (event.kind == Kind::allocate) {
            bytes = std::max(bytes, storage.bytes % 512 == 0 ? 0 : storage.bytes);
        }
    }
    return bytes;
}

// What real backward passes took on the stand-in device, 4 heads over 1,088 places.
TEST(Attention, TheEfficientKernelTakesTheWorkspaceOfPyTorch) {
    EXPECT_EQ(workspace_bytes(DType::bfloat16, 64), 1'115'200);
    EXPECT_EQ(workspace_bytes(DType::bfloat16, 96), 2'359'872);
    EXPECT_EQ(workspace_bytes(DType::bfloat16, 128), 2'359'872);
    EXPECT_EQ(workspace_bytes(DType::bfloat16, 192), 12'453'568);
    EXPECT_EQ(workspace_bytes(DType::bfloat16, 256), 13'633'792);
    EXPECT_EQ(workspace_bytes(DType::float32, 64), 1'115'200);
    EXPECT_EQ(workspace_bytes(DType::float32, 128), 2'360'448);
    EXPECT_EQ(workspace_bytes(DType::float32, 192), 3'540'672);
}

TEST(Eager, WhatIsSavedIsReleasedByItsBackward) {
    const ModuleTree tree = tree_with_weight();
    Eager f(tree, {});
    const Value input = f.outside({4, 8}, DType::float32);
    Value loss = f.call(ModuleIndex{0}, {&input}, [&] {
        Value hidden = op::linear(f, input, f.parameter(TensorIndex{0}));
        return op::activation(f, std::move(hidden), "silu");
    });
    const OperatorGraph graph = f.finish(std::move(loss));
    EXPECT_EQ(first_fault(graph), "");
    EXPECT_THAT(kinds_of(graph.forward, 0), testing::ElementsAre(Kind::allocate, Kind::save, Kind::drop));
    EXPECT_THAT(kinds_of(graph.backward, 0), testing::ElementsAre(Kind::unpack, Kind::release));
}

// Autograd sums the gradient of what was broadcast after the formula has run. What a checkpoint computed
// again is gone by then; what autograd saved itself goes later.
TEST(Eager, WhatWasReadIsUnpackedBeforeItsGradientIsSummed) {
    const ModuleTree tree = tree_with_weight();
    Eager f(tree, {});
    const Value input = f.outside({4, 8, 8}, DType::float32);
    Value loss = f.call(ModuleIndex{0}, {&input}, [&] {
        Value hidden = op::neg(f, input);
        return op::mul(f, std::move(hidden), f.parameter(TensorIndex{0}));
    });
    const OperatorGraph graph = f.finish(std::move(loss));
    EXPECT_EQ(first_fault(graph), "");
    EXPECT_THAT(kinds_of(graph.backward, 0), testing::ElementsAre(Kind::unpack, Kind::release));
    const auto at = [&](MemoryEvent event) {
        return std::ranges::find(graph.backward, event) - graph.backward.begin();
    };
    const auto sum = static_cast<std::int32_t>(graph.operators.size()) - 1;
    EXPECT_LT(at({Kind::unpack, 0}), at({Kind::run, sum}));
    EXPECT_GT(at({Kind::release, 0}), at({Kind::run, sum}));
}

TEST(Eager, AnInputThatTakesGradientsKeepsThemAndStays) {
    const ModuleTree tree = tree_with_weight();
    Eager f(tree, {});
    Value loss = f.call(ModuleIndex{0}, {}, [&] {
        Value rows = f.run("embedding", {{4, 8}, DType::float32}, {});
        f.require_gradient(rows);
        return op::neg(f, std::move(rows));
    });
    const OperatorGraph graph = f.finish(std::move(loss));
    EXPECT_EQ(first_fault(graph), "");
    EXPECT_EQ(graph.gradient_inputs, std::vector<std::int32_t>{0});
    EXPECT_THAT(kinds_of(graph.forward, 0), testing::ElementsAre(Kind::allocate, Kind::save, Kind::drop));
    EXPECT_TRUE(kinds_of(graph.backward, 0).empty());
    // 1: the result, 2: its gradient, 3: that of the rows.
    EXPECT_THAT(kinds_of(graph.backward, 3), testing::ElementsAre(Kind::allocate));
}

// The gradient of a linear layer's weight is a transposed view, which keeps its base: the engine adds out of
// place.
TEST(Eager, ASecondGradientOfAWeightIsAddedOutOfPlace) {
    const ModuleTree tree = tree_with_weight();
    Eager f(tree, {});
    const Value input = f.outside({4, 8}, DType::float32);
    Value loss = f.call(ModuleIndex{0}, {&input}, [&] {
        const Value weight = f.parameter(TensorIndex{0});
        return op::linear(f, op::linear(f, input, weight), weight);
    });
    const OperatorGraph graph = f.finish(std::move(loss));
    EXPECT_EQ(first_fault(graph), "");
    const auto gradients = std::ranges::count(graph.backward, Kind::gradient, &MemoryEvent::kind);
    EXPECT_EQ(gradients, 1);
    std::vector<std::string> names;
    for (const MemoryEvent& event : graph.backward) {
        if (event.kind == Kind::run) {
            names.push_back(graph.names[static_cast<std::size_t>(
                graph.operators[static_cast<std::size_t>(event.index)].name)]);
        }
    }
    EXPECT_THAT(names, testing::ElementsAre("ones_like", "mm", "mm", "mm", "add"));
}

}  // namespace
}  // namespace fsdplan
