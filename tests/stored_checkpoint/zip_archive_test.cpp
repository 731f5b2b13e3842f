#include "checkpoint/stored/zip_archive.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "fsdplan/base.hpp"
#include "support/temp_folder.hpp"
#include "support/zip_file.hpp"

namespace fsdplan {
namespace {

using test::TempFolder;
using test::zip_file;

TEST(ZipDirectory, SaysWhereTheDataAre) {
    const TempFolder folder;
    for (const bool zip64 : {false, true}) {
        const auto path =
            folder.write("a.pt", zip_file({{"a/data.pkl", "pickle"}, {"a/data/0", "12345678"}}, zip64));
        const std::vector<ZipMember> members = read_zip_directory(path, "a.pt");
        ASSERT_EQ(members.size(), 2U);
        EXPECT_EQ(members[1].name, "a/data/0");
        EXPECT_EQ(members[1].bytes, 8);
        EXPECT_EQ(read_range(path, static_cast<std::uintmax_t>(members[0].position), 6), "pickle");
        EXPECT_EQ(read_range(path, static_cast<std::uintmax_t>(members[1].position), 8), "12345678");
    }
}

TEST(ZipDirectory, OfAnArchiveInsideOfAFile) {
    const TempFolder folder;
    const std::string item = zip_file({{"archive/data/0", "xyz"}});
    const auto path = folder.write("__0_0.distcp", "before" + item + "after");
    const std::vector<ZipMember> members = read_zip_directory(
        path, "__0_0.distcp", {.begin = 6, .bytes = static_cast<std::int64_t>(item.size())});
    ASSERT_EQ(members.size(), 1U);
    EXPECT_EQ(read_range(path, static_cast<std::uintmax_t>(members[0].position), 3), "xyz");
}

TEST(ZipDirectory, EveryCutOffArchiveIsAnError) {
    const TempFolder folder;
    const std::string whole = zip_file({{"a/data.pkl", "pickle"}, {"a/data/0", "12345678"}}, true);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const auto path = folder.write("a.pt", whole.substr(0, size));
        EXPECT_THROW(read_zip_directory(path, "a.pt"), Error) << size;
    }
}

TEST(ZipDirectory, EveryFlippedByteIsAnErrorOrNoMatter) {
    const TempFolder folder;
    const std::string whole = zip_file({{"a/data.pkl", "pickle"}, {"a/data/0", "12345678"}}, true);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(~damaged[i]);
        const auto path = folder.write("a.pt", damaged);
        try {
            for (const ZipMember& member : read_zip_directory(path, "a.pt")) {
                EXPECT_LE(member.position + member.bytes, static_cast<std::int64_t>(whole.size())) << i;
            }
        } catch (const Error& error) {
            EXPECT_TRUE(std::string(error.what()).starts_with("a.pt at byte ")) << error.what();
        }
    }
}

}  // namespace
}  // namespace fsdplan
