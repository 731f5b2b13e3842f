#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "fsdplan/operators.hpp"

// Files of both exporters of torch.onnx beside what PyTorch itself does with the same models, both written by
// data/onnx/export.py.
namespace fsdplan {
namespace {

const std::filesystem::path data = std::filesystem::path(FSDPLAN_TEST_DATA) / "model" / "data" / "onnx";

/// Builds without protobuf refuse the files.
std::optional<ModelGraph> imported(const std::string& file, const ImportOptions& options = {}) {
    try {
        return import_model((data / file).string(), options);
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::machine) {
            return std::nullopt;
        }
        throw;
    }
}

struct Totals {
    std::int64_t saved_bytes = 0;
    std::int64_t flops = 0;
};

/// What autograd keeps between forward and backward of the model, without the loss.
Totals totals_of(const OperatorGraph& graph) {
    Totals out;
    std::set<std::int32_t> seen;
    for (std::size_t part = 0; part < graph.calls.size(); ++part) {
        for (const MemoryEvent& event : graph.forward_of(part)) {
            if (event.kind == MemoryEvent::Kind::save && seen.insert(event.index).second) {
                out.saved_bytes += graph.storages[static_cast<std::size_t>(event.index)].bytes;
            } else if (event.kind == MemoryEvent::Kind::run) {
                out.flops += graph.operators[static_cast<std::size_t>(event.index)].flops;
            }
        }
    }
    return out;
}

OperatorGraph played(const ModelGraph& graph) {
    return graph.operators(flatten(graph), {.batch = 2, .sequence = graph.longest_sequence.value_or(16)});
}

/// Paths of parameters with their shapes; the same tensor under several paths has them all.
std::map<std::string, std::string> parameters_of(const ModelGraph& graph) {
    const ModuleTree tree = flatten(graph);
    std::map<std::string, std::string> out;
    std::map<TensorIndex, std::string> first;
    for (std::size_t row = 0; row < tree.size(); ++row) {
        const ModuleIndex m{static_cast<std::int32_t>(row)};
        for (std::size_t i = 0; i < tree.parameters(m).size(); ++i) {
            const TensorIndex t = tree.parameters(m)[i];
            const std::string path = join_path(tree.path(m), tree.parameter_names(m)[i]);
            out[path] = testing::PrintToString(tree.tensors[at(t)].shape) + " tied to " +
                        first.try_emplace(t, path).first->second;
        }
    }
    return out;
}

class OnnxFile : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        const std::string file = GetParam();
        model = imported(file);
        if (!model) {
            GTEST_SKIP() << "built without protobuf";
        }
        recorded = import_model((data / (file.substr(0, file.find('.')) + ".json.gz")).string());
    }
    std::optional<ModelGraph> model;
    ModelGraph recorded;
};

TEST_P(OnnxFile, HasTheModelsParameters) {
    auto expected = parameters_of(recorded);
    auto found = parameters_of(*model);
    // Which of two tied names comes first is the order of registration, which a file does not keep.
    for (auto* each : {&expected, &found}) {
        for (auto& [path, shape] : *each) {
            if (path == "transformer.wte.weight" || path == "lm_head.weight") {
                shape = shape.substr(0, shape.find(" tied"));
            }
        }
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(flatten(*model).numel[0], flatten(recorded).numel[0]);
    EXPECT_EQ(flatten(*model).has_tied_parameters, flatten(recorded).has_tied_parameters);
}

TEST_P(OnnxFile, KeepsForBackwardWhatPyTorchKeeps) {
    const OperatorGraph graph = played(*model);
    EXPECT_EQ(first_fault(graph), "");
    const Totals found = totals_of(graph);
    const Totals expected = totals_of(played(recorded));
    EXPECT_GT(expected.saved_bytes, 0);
    EXPECT_NEAR(static_cast<double>(found.saved_bytes) / static_cast<double>(expected.saved_bytes), 1, 0.01);
    EXPECT_EQ(found.flops, expected.flops);
}

TEST_P(OnnxFile, CallsModulesInPyTorchsOrder) {
    const ModuleTree tree = flatten(*model);
    const ModuleTree reference = flatten(recorded);
    const OperatorGraph graph = played(*model);
    std::vector<std::string> found;
    for (const ModuleIndex m : graph.calls.module) {
        found.push_back(tree.path(m));
    }
    std::vector<std::string> expected;
    for (const ModuleIndex m : reference.calls.module) {
        // Dropout that drops nothing leaves no trace in a file.
        if (std::ranges::find(found, reference.path(m)) != found.end()) {
            expected.push_back(reference.path(m));
        }
    }
    EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(TorchExport, OnnxFile,
                         testing::Values("mlp.torch_export.onnx", "gpt2.torch_export.onnx",
                                         "bert.torch_export.onnx", "vit.torch_export.onnx"));
INSTANTIATE_TEST_SUITE_P(TorchScript, OnnxFile,
                         testing::Values("mlp.torchscript.onnx", "bert.torchscript.onnx",
                                         "vit.torchscript.onnx"));
// Constants folded, weights transposed and renamed, tensors of equal values merged.
INSTANTIATE_TEST_SUITE_P(Inference, OnnxFile, testing::Values("vit.inference_torchscript.onnx"));

// The recording of the same model by tools/python/fsdplan: 24,402 parameters, 140,992 bytes kept.
class OnnxResNet : public testing::TestWithParam<const char*> {};

TEST_P(OnnxResNet, KeepsInputsStatisticsAndIndices) {
    const std::optional<ModelGraph> model = imported(GetParam());
    if (!model) {
        GTEST_SKIP() << "built without protobuf";
    }
    EXPECT_EQ(flatten(*model).numel[0], 24'402);
    EXPECT_EQ(totals_of(played(*model)).saved_bytes, 140'992);
}

INSTANTIATE_TEST_SUITE_P(BothExporters, OnnxResNet,
                         testing::Values("resnet.torch_export.onnx", "resnet.torchscript.onnx"));

TEST(Onnx, NamesClassesWhereTheFileDoes) {
    const std::optional<ModelGraph> model = imported("gpt2.torch_export.onnx");
    if (!model) {
        GTEST_SKIP() << "built without protobuf";
    }
    const ModuleTree tree = flatten(*model);
    const auto class_at = [&](const char* path) {
        return std::string(short_name(tree.class_info(tree.find(path).value()).name));
    };
    EXPECT_EQ(class_at("transformer.h.0"), "GPT2Block");
    EXPECT_EQ(class_at("transformer.h.1.attn.c_attn"), "Conv1D");
    EXPECT_EQ(class_at("transformer.h"), "ModuleList");
}

TEST(Onnx, PutsDropoutBackOnlyWhereItDrops) {
    const std::optional<ModelGraph> model = imported("mlp.torchscript.onnx");
    if (!model) {
        GTEST_SKIP() << "built without protobuf";
    }
    const std::vector<std::string> names = played(*model).names;
    EXPECT_THAT(names, testing::Contains("native_dropout"));
    EXPECT_THAT(names, testing::Contains("gelu"));  // written out with Erf in the file
    EXPECT_THAT(names, testing::Not(testing::Contains("erf")));
    const std::vector<std::string> of_vit = played(*imported("vit.torchscript.onnx")).names;
    EXPECT_THAT(of_vit, testing::Not(testing::Contains("native_dropout")));  // p = 0
}

TEST(Onnx, TakesTheDtypeOfTheOptions) {
    const std::optional<ModelGraph> model = imported("mlp.torchscript.onnx", {.dtype = DType::bfloat16});
    if (!model) {
        GTEST_SKIP() << "built without protobuf";
    }
    for (const Tensor& tensor : model->tensors) {
        EXPECT_EQ(tensor.dtype, DType::bfloat16);
    }
}

TEST(Onnx, PlaysAnyBatchOfADynamicFile) {
    const std::optional<ModelGraph> model = imported("mlp.torch_export.onnx");
    if (!model) {
        GTEST_SKIP() << "built without protobuf";
    }
    const ModuleTree tree = flatten(*model);
    const std::int64_t one = totals_of(model->operators(tree, {.batch = 1})).saved_bytes;
    const std::int64_t four = totals_of(model->operators(tree, {.batch = 4})).saved_bytes;
    EXPECT_EQ(four, 4 * one);
}

}  // namespace
}  // namespace fsdplan
