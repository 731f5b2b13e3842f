#include "input_file.hpp"
#include "look_at.hpp"

// Any bytes as the file that FSDPLAN_FUZZ_FILE names.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fsdplan::fuzz::look_at(fsdplan::fuzz::input_file(data, size));
}
