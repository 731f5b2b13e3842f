#pragma once

#include <cstdint>
#include <span>

namespace fsdplan {

/// Elements of a tensor whose size was checked.
constexpr std::int64_t numel_of(std::span<const std::int64_t> shape) {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) {
        numel *= size;
    }
    return numel;
}

}  // namespace fsdplan
