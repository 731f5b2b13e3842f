#include <cstdint>
#include <string_view>

#include "fsdplan/decode.hpp"

// A log or a flight recorder's dump of any bytes: collectives, or an Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const auto observed = fsdplan::parse_collectives(text, "input");
        fsdplan::sharing_ranks(observed);
        fsdplan::rank_order(observed);
    } catch (const fsdplan::Error&) {
    }
    return 0;
}
