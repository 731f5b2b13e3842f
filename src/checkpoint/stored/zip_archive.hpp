#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// The directory of a ZIP archive as torch.save writes it: nothing compressed, ZIP64 when large.
namespace fsdplan {

struct ZipMember {
    std::string name;
    std::int64_t position = 0;  ///< byte of the file where its data begin
    std::int64_t bytes = 0;
};

/// Part of a file that is an archive of its own.
struct FileRange {
    std::int64_t begin = 0;
    std::int64_t bytes = 0;
};

/// The members of the archive that is the file, in the order of its directory.
///
/// Throws Error(input) with the byte for what is damaged, compressed, encrypted or split, for equal names,
/// and for members that overlap.
std::vector<ZipMember> read_zip_directory(const std::filesystem::path& path, const std::string& shown);

/// The same of an archive inside of a file, such as an item of a .distcp file.
std::vector<ZipMember> read_zip_directory(const std::filesystem::path& path, const std::string& shown,
                                          FileRange range);

}  // namespace fsdplan
