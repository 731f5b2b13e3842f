#include "fsdplan/model.hpp"
#include "input_file.hpp"

// Any bytes are a model or an Error: nothing crashes, hangs or takes all memory.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        static_cast<void>(fsdplan::flatten(fsdplan::import_model(fsdplan::fuzz::input_file(data, size))));
    } catch (const fsdplan::Error&) {
        return -1;  // refused with a reason; not worth keeping as a seed
    }
    return 0;
}
