#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/allocator.hpp"

// What allocator traces (docs/formats.md) say of single steps, and our own in the same words.
namespace fsdplan {

template <std::size_t size>
std::array<std::int64_t, size> read_numbers(const json::Value& list) {
    if (!list.is_array() || list.size() != size) {
        list.fail("a list of " + std::to_string(size) + " numbers");
    }
    std::array<std::int64_t, size> out{};
    std::size_t i = 0;
    for (const json::Value n : list.elements()) {
        out.at(i++) = n.integer(-largest_total, largest_total);
    }
    return out;
}

DriverCall read_call(const json::Value& list);
/// Calls as a multiset: in the order of their values.
std::string shown_calls(std::vector<DriverCall> calls);

std::string shown_result(const json::Value& recorded);
std::string shown_result(const Allocation& got);

std::string shown_layout(const json::Value& recorded);
std::string shown_layout(const std::vector<CachingAllocator::SegmentView>& got);

}  // namespace fsdplan
