#pragma once

#include <cstddef>
#include <string_view>

namespace fsdplan {

/// Length of the well-formed UTF-8 sequence at the front of `text`; 0 when there is none (overlong forms,
/// surrogates and code points above U+10FFFF are ill-formed).
constexpr std::size_t utf8_sequence(std::string_view text) {
    const auto byte = [text](std::size_t i) -> unsigned {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const auto continues = [byte](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
    const unsigned lead = byte(0);
    const unsigned second = byte(1);
    if (text.empty()) {
        return 0;
    }
    if (lead < 0x80U) {
        return 1;
    }
    if (lead >= 0xC2U && lead <= 0xDFU) {
        return continues(1) ? 2 : 0;
    }
    if (lead >= 0xE0U && lead <= 0xEFU) {
        const bool in_range = (lead != 0xE0U || second >= 0xA0U) && (lead != 0xEDU || second <= 0x9FU);
        return in_range && continues(1) && continues(2) ? 3 : 0;
    }
    if (lead >= 0xF0U && lead <= 0xF4U) {
        const bool in_range = (lead != 0xF0U || second >= 0x90U) && (lead != 0xF4U || second <= 0x8FU);
        return in_range && continues(1) && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

}  // namespace fsdplan
