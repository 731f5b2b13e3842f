#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.hpp"
#include "fsdplan/model.hpp"

// Any bytes are a model or an Error: nothing crashes, hangs or runs out of memory.

namespace {

/// A file of its own in memory for this process; its name decides which importer gets it.
const std::filesystem::path& input_file() {
    static const std::filesystem::path path = [] {
        const std::filesystem::path folder =
            std::filesystem::temp_directory_path() / ("fsdplan-fuzz-" + std::to_string(getpid()));
        std::filesystem::create_directories(folder);
        return folder / FSDPLAN_FUZZ_FILE;
    }();
    return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fsdplan::write_file(input_file(), std::string_view(reinterpret_cast<const char*>(data), size));
    try {
        static_cast<void>(fsdplan::flatten(fsdplan::import_model(input_file().string())));
    } catch (const fsdplan::Error&) {
        return 0;  // refused with a reason, which is as good as accepted
    }
    return 0;
}
