#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/model.hpp"
#include "support/checkpoint.hpp"
#include "support/temp_folder.hpp"

namespace fsdplan {
namespace {

using test::CheckpointTensor;
using test::TempFolder;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string fault_of(const std::filesystem::path& path) {
    try {
        import_model(path.string());
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

/// Paths of all parameters with their module's class, in order.
std::vector<std::string> parameter_paths(const ModelGraph& graph) {
    const ModuleTree tree = flatten(graph);
    std::vector<std::string> out;
    for (std::size_t row = 0; row < tree.size(); ++row) {
        const ModuleIndex m{static_cast<std::int32_t>(row)};
        for (const std::string& name : tree.parameter_names(m)) {
            const std::string path = tree.path(m);
            out.push_back(path + (path.empty() ? "" : ".") + name);
        }
    }
    return out;
}

std::int64_t total_numel(const ModelGraph& graph) {
    return flatten(graph).numel.front();
}

ModelGraph import_tensors(const TempFolder& folder, const std::vector<CheckpointTensor>& tensors,
                          const ImportOptions& options = {}) {
    return import_model(folder.write("model.safetensors", safetensors_header(tensors)).string(), options);
}

TEST(SafetensorsHeader, HasTheVerdictOfTheReferenceReader) {
    const std::string folder = FSDPLAN_TEST_DATA "/golden/state_dict/";
    const json::Document recording(read_file(folder + "layout.json"), "layout.json");
    int files = 0;
    for (const json::Value verdict : recording.root().at("safetensors_cases").members()) {
        const std::string name(verdict.key());
        SCOPED_TRACE(name);
        const std::string fault = fault_of(folder + "files/safetensors_cases/" + name + ".safetensors");
        EXPECT_EQ(fault == "accepted", verdict.at("file").string() == "accepted") << fault;
        EXPECT_EQ(std::ranges::count(fault, '\n'), 0) << fault;
        ++files;
    }
    EXPECT_EQ(files, 35);
}

TEST(SafetensorsHeader, KeepsShapesAndDtypesOfTheFile) {
    const TempFolder folder;
    const ModelGraph graph = import_tensors(
        folder,
        {{"a", "BF16", {3, 5}, 2}, {"b", "F8_E4M3", {7}, 1}, {"c", "I32", {}, 4}, {"d", "U8", {0}, 1}});
    ASSERT_EQ(graph.tensors.size(), 4U);
    EXPECT_THAT(graph.tensors[0].shape, ElementsAre(3, 5));
    EXPECT_EQ(graph.tensors[0].numel, 15);
    EXPECT_EQ(graph.tensors[0].dtype, DType::bfloat16);
    EXPECT_TRUE(graph.tensors[0].requires_grad);
    EXPECT_EQ(graph.tensors[1].dtype, DType::float8_e4m3fn);
    EXPECT_EQ(graph.tensors[2].numel, 1);
    EXPECT_FALSE(graph.tensors[2].requires_grad);  // torch refuses gradients of integers
    EXPECT_EQ(graph.tensors[3].numel, 0);
}

TEST(SafetensorsHeader, DtypeOptionCastsFloatingPointTensors) {
    const TempFolder folder;
    const ModelGraph graph =
        import_tensors(folder, {{"a", "BF16", {2}, 2}, {"b", "I64", {2}, 8}}, {.dtype = DType::float32});
    EXPECT_EQ(graph.tensors[0].dtype, DType::float32);
    EXPECT_EQ(graph.tensors[1].dtype, DType::int64);
}

TEST(SafetensorsHeader, ExtensionIsNotNeeded) {
    const TempFolder folder;
    const std::filesystem::path path =
        folder.write("weights.bin", test::safetensors_header({{"w", "F32", {2}, 4}}));
    EXPECT_EQ(total_numel(import_model(path.string())), 2);
}

TEST(TreeFromNames, NumbersBecomeAListInNumericOrder) {
    const TempFolder folder;
    const ModelGraph graph = import_tensors(folder, {{"layers.10.w", "BF16", {1}, 2},
                                                     {"layers.2.w", "BF16", {1}, 2},
                                                     {"head.w", "BF16", {1}, 2},
                                                     {"layers.0.w", "BF16", {1}, 2},
                                                     {"layers.2.b", "BF16", {1}, 2}});
    EXPECT_THAT(parameter_paths(graph),
                ElementsAre("layers.0.w", "layers.2.w", "layers.2.b", "layers.10.w", "head.w"));
    const ModuleTree tree = flatten(graph);
    EXPECT_EQ(short_name(tree.class_info(*tree.find("layers")).name), "ModuleList");
    EXPECT_EQ(tree.class_info(*tree.find("layers.10")).name, "layers_member");
    EXPECT_EQ(tree.class_info(*tree.find("head")).name, "torch.nn.modules.module.Module");
    EXPECT_FALSE(graph.classes_known);
    EXPECT_THAT(graph.notes, Contains(HasSubstr("module classes are unknown")));
    EXPECT_THAT(graph.notes, Contains(HasSubstr("ties are unknown")));
}

TEST(TreeFromNames, NamesThatCannotBePathsStayWhole) {
    const TempFolder folder;
    std::string deep = "a";
    for (int i = 0; i < 100'000; ++i) {
        deep += ".a";
    }
    const ModelGraph graph = import_tensors(folder, {{"", "BF16", {1}, 2},
                                                     {".a", "BF16", {1}, 2},
                                                     {"a.", "BF16", {1}, 2},
                                                     {"a..b", "BF16", {1}, 2},
                                                     {"\\u0000", "BF16", {1}, 2},
                                                     {deep, "BF16", {1}, 2},
                                                     {"x", "BF16", {1}, 2},
                                                     {"x.y", "BF16", {1}, 2}});
    EXPECT_THAT(parameter_paths(graph),
                ElementsAre("", ".a", "a.", "a..b", std::string(1, '\0'), deep, "x", "x.y"));
    EXPECT_THAT(graph.notes, Contains(HasSubstr("5 tensor names cannot be attribute paths")));
}

const std::string tiny_llama = R"({"model_type": "llama", "hidden_size": 4, "intermediate_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 10,
    "dtype": "float32", "tie_word_embeddings": true})";

std::vector<CheckpointTensor> tiny_llama_tensors(const std::string& prefix = "model.") {
    const std::string layer = prefix + "layers.0.";
    return {{prefix + "embed_tokens.weight", "BF16", {10, 4}, 2},
            {layer + "input_layernorm.weight", "BF16", {4}, 2},
            {layer + "mlp.down_proj.weight", "BF16", {4, 8}, 2},
            {layer + "mlp.gate_proj.weight", "BF16", {8, 4}, 2},
            {layer + "mlp.up_proj.weight", "BF16", {8, 4}, 2},
            {layer + "post_attention_layernorm.weight", "BF16", {4}, 2},
            {layer + "self_attn.k_proj.weight", "BF16", {4, 4}, 2},
            {layer + "self_attn.o_proj.weight", "BF16", {4, 4}, 2},
            {layer + "self_attn.q_proj.weight", "BF16", {4, 4}, 2},
            {layer + "self_attn.v_proj.weight", "BF16", {4, 4}, 2},
            {prefix + "norm.weight", "BF16", {4}, 2}};
}

// Embedding 10 x 4, three norms of 4, three MLP matrices of 4 x 8, four attention matrices of 4 x 4.
constexpr std::int64_t tiny_llama_numel = 40 + 3 * 4 + 3 * 32 + 4 * 16;

TEST(CheckpointWithConfig, ClassesAndTiesComeFromTheConfig) {
    const TempFolder folder;
    folder.write("config.json", tiny_llama);
    const ModelGraph graph = import_tensors(folder, tiny_llama_tensors());
    EXPECT_TRUE(graph.classes_known);
    EXPECT_EQ(total_numel(graph), tiny_llama_numel);
    EXPECT_TRUE(flatten(graph).has_tied_parameters);
    EXPECT_THAT(
        graph.notes,
        Contains(HasSubstr("11 of 11 tensors of the file are those of config.json by name and shape")));
    EXPECT_THAT(graph.notes, Contains(HasSubstr("\"lm_head.weight = model.embed_tokens.weight\"")));
    EXPECT_THAT(graph.notes, Contains(HasSubstr("11 tensors are bfloat16 as in the file, not float32")));
    EXPECT_THAT(graph.notes, Not(Contains(HasSubstr("not in the file:"))));
    for (const TensorIndex t : flatten(graph).parameter) {
        EXPECT_EQ(graph.tensors[at(t)].dtype, DType::bfloat16);
    }
}

TEST(CheckpointWithConfig, OtherShapesAreAnError) {
    const TempFolder folder;
    folder.write("config.json", tiny_llama);
    std::vector<CheckpointTensor> tensors = tiny_llama_tensors();
    tensors[0].shape = {12, 4};
    const auto path = folder.write("model.safetensors", test::safetensors_header(tensors));
    EXPECT_THAT(fault_of(path),
                HasSubstr("model.safetensors: does not fit the config.json beside it: 1 tensor "
                          "(\"model.embed_tokens.weight [12, 4] instead of [10, 4]\")"));
}

TEST(CheckpointWithConfig, MissingAndExtraTensorsAreNamed) {
    const TempFolder folder;
    folder.write("config.json", tiny_llama);
    std::vector<CheckpointTensor> tensors = tiny_llama_tensors();
    tensors[1].name = "model.layers.7.enorm.weight";
    const ModelGraph graph = import_tensors(folder, tensors);
    EXPECT_EQ(total_numel(graph), tiny_llama_numel);
    EXPECT_THAT(graph.notes, Contains(HasSubstr("in the model, not in the file: 1 tensor "
                                                "(\"model.layers.0.input_layernorm.weight\")")));
    EXPECT_THAT(
        graph.notes,
        Contains(HasSubstr("in the file, not in the model: 1 tensor (\"model.layers.7.enorm.weight\")")));
}

// As when a checkpoint has one tensor for each expert and the model fuses them.
TEST(CheckpointWithConfig, AnotherLayoutOfTheSameWeightsIsNoError) {
    const TempFolder folder;
    folder.write("config.json", tiny_llama);
    std::vector<CheckpointTensor> tensors = tiny_llama_tensors();
    tensors[3] = {"model.layers.0.mlp.experts.0.gate_proj.weight", "F8_E4M3", {4, 4}, 1};
    tensors.push_back({"model.layers.0.mlp.experts.1.gate_proj.weight", "F8_E4M3", {4, 4}, 1});
    const ModelGraph graph = import_tensors(folder, tensors);
    EXPECT_EQ(total_numel(graph), tiny_llama_numel);
    EXPECT_THAT(graph.notes, Contains(HasSubstr("both sides have 32 elements: another layout")));
    const ModuleTree tree = flatten(graph);
    const auto gate = tree.find_parameter("model.layers.0.mlp.gate_proj.weight");
    EXPECT_EQ(graph.tensors[at(*gate)].dtype, DType::float8_e4m3fn);
}

TEST(CheckpointWithConfig, ExpertsOneByOneAgainstFusedOnes) {
    const TempFolder folder;
    folder.write("config.json", R"({"model_type": "mixtral", "hidden_size": 4, "intermediate_size": 6,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 10,
        "num_local_experts": 2, "dtype": "bfloat16"})");
    std::vector<CheckpointTensor> tensors{{"model.embed_tokens.weight", "BF16", {10, 4}, 2},
                                          {"lm_head.weight", "BF16", {10, 4}, 2},
                                          {"model.layers.0.block_sparse_moe.gate.weight", "BF16", {2, 4}, 2}};
    for (const std::string expert : {"0", "1"}) {
        const std::string prefix = "model.layers.0.block_sparse_moe.experts." + expert;
        tensors.push_back({prefix + ".w1.weight", "BF16", {6, 4}, 2});
        tensors.push_back({prefix + ".w2.weight", "BF16", {4, 6}, 2});
        tensors.push_back({prefix + ".w3.weight", "BF16", {6, 4}, 2});
    }
    for (const char* norm :
         {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"}) {
        tensors.push_back({std::string(norm) + ".weight", "BF16", {4}, 2});
    }
    for (const char* projection : {"q", "k", "v", "o"}) {
        tensors.push_back(
            {std::string("model.layers.0.self_attn.") + projection + "_proj.weight", "BF16", {4, 4}, 2});
    }
    const ModelGraph graph = import_tensors(folder, tensors);
    // Two embeddings, the gate, six expert matrices, three norms, four projections.
    EXPECT_EQ(total_numel(graph), 2 * 40 + 8 + 6 * 24 + 3 * 4 + 4 * 16);
    EXPECT_THAT(graph.notes, Contains(HasSubstr("both sides have 152 elements: another layout")));
}

TEST(CheckpointWithConfig, ABaseModelsNamesLackThePrefix) {
    const TempFolder folder;
    folder.write("config.json", tiny_llama);
    const ModelGraph graph = import_tensors(folder, tiny_llama_tensors(""));
    EXPECT_THAT(graph.notes, Contains(HasSubstr("names lack the prefix \"model.\"")));
    EXPECT_THAT(graph.notes, Contains(HasSubstr("11 of 11 tensors")));
}

TEST(CheckpointWithConfig, AConfigThatCannotBeReadIsSaid) {
    const TempFolder folder;
    folder.write("config.json", R"({"model_type": "frobnicator"})");
    const ModelGraph graph = import_tensors(folder, tiny_llama_tensors());
    EXPECT_FALSE(graph.classes_known);
    EXPECT_THAT(graph.notes, Contains(HasSubstr("the config.json beside it could not be used")));
}

TEST(SafetensorsIndex, JoinsItsFiles) {
    const TempFolder folder;
    folder.write("a.safetensors", test::safetensors_header({{"x.w", "F32", {3}, 4}}));
    folder.write("b.safetensors", test::safetensors_header({{"x.b", "F32", {2}, 4}}));
    const auto path = folder.write(
        "model.safetensors.index.json",
        R"({"metadata": {"total_size": 24}, "weight_map": {"x.b": "b.safetensors", "x.w": "a.safetensors"}})");
    const ModelGraph graph = import_model(path.string());
    EXPECT_THAT(parameter_paths(graph), ElementsAre("x.b", "x.w"));
    EXPECT_EQ(total_numel(graph), 5);
    EXPECT_THAT(graph.notes, Contains(HasSubstr("total_size 24, but its tensors have 20 bytes")));
}

TEST(SafetensorsIndex, FindsWhatDoesNotAgree) {
    const TempFolder folder;
    folder.write("a.safetensors", test::safetensors_header({{"x", "F32", {3}, 4}, {"y", "F32", {1}, 4}}));
    const auto fault = [&](const std::string& map) {
        const auto path = folder.write("model.safetensors.index.json", R"({"weight_map": )" + map + "}");
        const std::string text = fault_of(path);
        const std::size_t start = text.find("model.safetensors.index.json");
        return start == std::string::npos ? text : text.substr(start);
    };
    EXPECT_EQ(fault(R"({"x": "a.safetensors", "y": "a.safetensors"})"), "accepted");
    EXPECT_THAT(fault(R"({"x": "b.safetensors"})"),
                HasSubstr("there is no file \"b.safetensors\" beside it, which should hold 1 of 1 tensors"));
    EXPECT_THAT(fault(R"({"x": "a.safetensors"})"),
                HasSubstr("holds the tensor \"y\", which the index does not place in this file"));
    EXPECT_THAT(fault(R"({"x": "a.safetensors", "y": "a.safetensors", "z": "a.safetensors"})"),
                HasSubstr("#/weight_map/z: the file \"a.safetensors\" does not hold this tensor"));
    for (const char* name : {"", "..", "/etc/passwd", "../a.safetensors", "b/a.safetensors", "a\\\\b"}) {
        EXPECT_THAT(fault(R"({"x": ")" + std::string(name) + "\"}"),
                    HasSubstr("expected the plain name of a file in the same folder"));
    }
    EXPECT_THAT(fault(R"({"x": 3})"), HasSubstr("expected a string"));
    EXPECT_THAT(fault(R"([])"), HasSubstr("expected an object"));
}

TEST(SafetensorsIndex, ReadsTheHeadersOfManyExperts) {
    const TempFolder folder;
    test::write_expert_checkpoint(folder.path(), 4'000, 7);
    const ModelGraph graph = import_model((folder.path() / "model.safetensors.index.json").string());
    EXPECT_EQ(graph.tensors.size(), 4'000U);
    const ModuleTree tree = flatten(graph);
    EXPECT_EQ(tree.children(*tree.find("model.layers.0.mlp.experts")).size(), 256U);
    EXPECT_EQ(tree.child_names(*tree.find("model.layers.0.mlp.experts"))[10], "10");
}

}  // namespace
}  // namespace fsdplan
