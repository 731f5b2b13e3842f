#include "fsdplan/verify.hpp"
#include "input_file.hpp"

// Any bytes as a memory snapshot: read and replayed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fsdplan::fuzz::input_file(data, size);
    try {
        fsdplan::verify(std::span(&path, 1));
    } catch (const fsdplan::Error&) {
        return 0;  // wrong input, and said so
    }
    return 0;
}
