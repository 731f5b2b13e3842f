#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace fsdplan::fuzz {

/// A folder of this process.
inline std::filesystem::path input_folder() {
    std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("fsdplan-fuzz-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    return folder;
}

/// Writes the fuzzer's bytes to a file and returns its path. The name, which decides who reads it, is the
/// program's own: FSDPLAN_FUZZ_FILE.
inline std::string input_file(const std::uint8_t* data, std::size_t size) {
    const std::string path = input_folder() / FSDPLAN_FUZZ_FILE;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    return path;
}

}  // namespace fsdplan::fuzz
