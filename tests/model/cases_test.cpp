#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/model.hpp"
#include "support/temp_folder.hpp"

// Cases of tests/cases that are about imports.
namespace fsdplan {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(Case21HeaderOnlyTied, CountsATiedHeadOnceAndSaysThatDataAreMissing) {
    const std::string folder = FSDPLAN_TEST_DATA "/cases/21-header-only-tied/";
    const json::Document document(read_file(folder + "expected.json"), "expected.json");
    const json::Value expected = document.root().at("expect");
    const ModelGraph graph = import_model(folder + "model.safetensors");
    const ModuleTree tree = flatten(graph);

    EXPECT_EQ(tree.numel.front(), expected.at("params").integer());
    std::int64_t bytes = 0;
    for (const Tensor& tensor : graph.tensors) {
        bytes += tensor.requires_grad ? bytes_of(tensor.numel, tensor.dtype).count : 0;
    }
    EXPECT_EQ(bytes, expected.at("data_bytes_declared").integer());
    EXPECT_EQ(tree.find_parameter("lm_head.weight"), tree.find_parameter(expected.at("tied_with").string()));
    EXPECT_THAT(graph.notes,
                Contains(HasSubstr(std::to_string(expected.at("tensors").integer()) + " tensors have " +
                                   std::to_string(bytes) + " bytes by the header, of which " +
                                   std::to_string(expected.at("data_bytes_present").integer()) +
                                   " are in the file")));
    const std::string file = read_file(folder + "model.safetensors");
    EXPECT_EQ(file.find("\"lm_head.weight\"") != std::string::npos, expected.at("lm_head_in_file").boolean());
    EXPECT_THAT(graph.notes, Contains(HasSubstr("since they are tied, counted once: 1 tensor "
                                                "(\"lm_head.weight = model.embed_tokens.weight\")")));
}

TEST(Case21HeaderOnlyTied, WithoutItsConfigTheTieIsUnknown) {
    const test::TempFolder folder;
    std::filesystem::copy_file(FSDPLAN_TEST_DATA "/cases/21-header-only-tied/model.safetensors",
                               folder.path() / "model.safetensors");
    const ModelGraph graph = import_model(folder.path().string());
    const ModuleTree tree = flatten(graph);
    EXPECT_EQ(tree.numel.front(), 494'032'768);
    EXPECT_FALSE(tree.find_parameter("lm_head.weight").has_value());
    EXPECT_THAT(graph.notes, Contains(HasSubstr("ties are unknown")));
}

}  // namespace
}  // namespace fsdplan
