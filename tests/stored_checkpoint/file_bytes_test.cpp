#include <gtest/gtest.h>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/stored_checkpoint.hpp"

// Sizes against those of files that torch and safetensors wrote (data/record.py).
namespace fsdplan {
namespace {

constexpr const char* recorded = FSDPLAN_TEST_DATA "/stored_checkpoint/data/file_bytes.json";

std::vector<std::int64_t> shape_of(json::Value row) {
    std::vector<std::int64_t> shape;
    for (const json::Value size : row.at("shape").elements()) {
        shape.push_back(size.integer());
    }
    return shape;
}

DType dtype_of(json::Value row) {
    return dtype_from_name(row.at("dtype").string()).value();
}

TEST(DcpItemBytes, AreThoseOfArchivesThatTorchWrote) {
    const json::Document document(read_file(recorded), "file_bytes.json");
    int items = 0;
    for (const json::Value item : document.root().at("items").elements()) {
        const std::vector<std::int64_t> shape = shape_of(item);
        EXPECT_EQ(dcp_item_bytes(dtype_of(item), shape), item.at("bytes").integer()) << item.shown();
        ++items;
    }
    EXPECT_EQ(items, 400);
}

TEST(DcpItemBytes, BeyondFourGibibytesHaveLargerRecords) {
    // As written by torch 2.13, whose archive had a name of 5 letters in place of "archive": 2 bytes less for
    // each of 7 members in the directory.
    const auto bytes = [](std::vector<std::int64_t> shape) {
        constexpr std::int64_t shorter = 14;
        return dcp_item_bytes(DType::bfloat16, shape) - shorter;
    };
    EXPECT_EQ(bytes({2147483648}), 4294968911);
    EXPECT_EQ(bytes({2147483640}), 4294968827);
    EXPECT_EQ(bytes({3, 2147483648}), 12884903503);
}

TEST(SafetensorsFileBytes, AreThoseOfFilesThatTheLibraryWrote) {
    const json::Document document(read_file(recorded), "file_bytes.json");
    int files = 0;
    for (const json::Value file : document.root().at("files").elements()) {
        std::vector<TensorEntry> tensors;
        for (const json::Value tensor : file.at("tensors").elements()) {
            tensors.push_back({std::string(tensor.at("name").string()), dtype_of(tensor), shape_of(tensor)});
        }
        std::vector<std::pair<std::string, std::string>> metadata;
        for (const json::Value entry : file.at("metadata").elements()) {
            const std::vector<std::string> pair = entry.strings();
            metadata.emplace_back(pair.at(0), pair.at(1));
        }
        EXPECT_EQ(safetensors_file_bytes(tensors, metadata), file.at("bytes").integer()) << file.shown();
        ++files;
    }
    EXPECT_EQ(files, 60);
}

TEST(SafetensorsFileBytes, RefuseWhatTheFormatCannotHold) {
    const std::vector<TensorEntry> tensors{{"z", DType::complex128, {1}}};
    EXPECT_THROW(safetensors_file_bytes(tensors), Error);
}

}  // namespace
}  // namespace fsdplan
