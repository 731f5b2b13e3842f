#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "fsdplan/base.hpp"

namespace fsdplan {

/// The whole file; throws Error(input) when it cannot be read or has more than `most` bytes.
std::string read_file(const std::filesystem::path& path, std::uintmax_t most = std::uintmax_t{1} << 29U);

/// The file's text, unpacked when it is gzip (told by its first bytes, not by its name).
std::string read_text(const std::filesystem::path& path);

/// The first `size` bytes of the text, or all of it when it is shorter; unpacks no more than it must.
std::string read_head(const std::filesystem::path& path, std::size_t size);

/// Bytes [offset, offset + size) of a file; throws Error(input) when it is shorter.
std::string read_range(const std::filesystem::path& path, std::uintmax_t offset, std::size_t size);

/// Size in bytes; throws Error(input) when there is no such regular file.
std::uintmax_t size_of_file(const std::filesystem::path& path);

/// Writes to a neighbour and renames, so that the file is there whole or not at all.
/// Throws Error(machine) when it cannot be written.
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace fsdplan
