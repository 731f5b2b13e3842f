#include "verify/digest.hpp"

#include <nettle/sha2.h>

#include <array>

namespace fsdplan {

std::string sha256_of_lines(const std::vector<std::string>& lines) {
    sha256_ctx context{};
    sha256_init(&context);
    const auto add = [&](std::string_view text) {
        sha256_update(&context, text.size(), reinterpret_cast<const std::uint8_t*>(text.data()));
    };
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) {
            add("\n");
        }
        add(lines[i]);
    }
    std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
    sha256_digest(&context, digest.size(), digest.data());
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (const std::uint8_t byte : digest) {
        out += digits[byte >> 4U];
        out += digits[byte & 15U];
    }
    return out;
}

}  // namespace fsdplan
