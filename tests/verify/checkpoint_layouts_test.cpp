#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.hpp"
#include "fsdplan/verify.hpp"
#include "support/temp_folder.hpp"

namespace fsdplan {
namespace {

using test::TempFolder;
using testing::Contains;
using testing::Field;
using testing::StartsWith;

const std::filesystem::path golden = FSDPLAN_TEST_DATA "/golden/state_dict";

Verification verified(const std::filesystem::path& path) {
    const std::string text = path.string();
    return verify(std::span(&text, 1));
}

/// The recording with one text replaced by another, beside its files.
Verification changed(const TempFolder& folder, const std::string& from, const std::string& to) {
    std::string text = read_file(golden / "layout.json");
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    std::error_code ignored;
    std::filesystem::create_directory_symlink(golden / "files", folder.path() / "files", ignored);
    return verified(folder.write("layout.json", text));
}

TEST(CheckpointLayouts, AllItemsAndAllVerdictsMatch) {
    const Verification result = verified(golden / "layout.json");
    EXPECT_EQ(result.cases, 47);
    EXPECT_EQ(result.match, 47);
}

TEST(CheckpointLayouts, ANumberThatChangesIsFound) {
    const TempFolder folder;
    // Of an item with files, and of one that is only described.
    EXPECT_THAT(changed(folder, "\"__0_0.distcp\": 90027", "\"__0_0.distcp\": 90028").differences,
                Contains(Field(&Difference::where, "file __0_0.distcp")));
    EXPECT_THAT(changed(folder, "\"at\": 3783", "\"at\": 3784").differences,
                Contains(Field(&Difference::where, StartsWith("__"))));
    EXPECT_THAT(changed(folder, "\"overlap\": {\"bytes\": \"SafetensorError\", \"file\": \"SafetensorError\"",
                        "\"overlap\": {\"bytes\": \"SafetensorError\", \"file\": \"accepted\"")
                    .differences,
                Contains(Field(&Difference::where, "verdict")));
}

}  // namespace
}  // namespace fsdplan
