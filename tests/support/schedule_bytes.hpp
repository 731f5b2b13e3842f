#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "fsdplan/schedule.hpp"

// What a schedule holds on the device, as it is requested: what an allocator adds to small blocks is left
// out.
namespace fsdplan::test {

/// Bytes of a category after each operation.
inline std::vector<std::int64_t> bytes_over_time(const Schedule& schedule, Category of) {
    std::vector<std::int64_t> out;
    std::vector<Category> category;
    for (const Buffer& buffer : schedule.buffers) {
        category.push_back(buffer.category);
    }
    std::int64_t now = 0;
    for (const Op& op : schedule.ops) {
        if (op.kind == OpKind::allocate || op.kind == OpKind::free || op.kind == OpKind::relabel) {
            const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(op.target)];
            Category& is = category[static_cast<std::size_t>(op.target)];
            const std::int64_t bytes = buffer.on_host ? 0 : buffer.bytes;
            if (op.kind == OpKind::allocate) {
                is = buffer.category;
                now += is == of ? bytes : 0;
            } else {
                now -= is == of ? bytes : 0;
            }
            if (op.kind == OpKind::relabel) {
                is = static_cast<Category>(op.detail);
                now += is == of ? bytes : 0;
            }
        }
        out.push_back(now);
    }
    return out;
}

/// The last operation that is this mark, of the unit with this name.
inline std::size_t last_mark(const Schedule& schedule, Mark mark, std::string_view unit) {
    for (std::size_t i = schedule.ops.size(); i-- > 0;) {
        const Op& op = schedule.ops[i];
        if (op.kind == OpKind::mark && static_cast<Mark>(op.detail) == mark &&
            (op.unit < 0 || schedule.units[static_cast<std::size_t>(op.unit)] == unit)) {
            return i;
        }
    }
    throw std::logic_error("no such mark");
}

/// Bytes of a category when the last iteration passes a mark.
inline std::int64_t bytes_at(const Schedule& schedule, Category of, Mark mark, std::string_view unit = "") {
    return bytes_over_time(schedule, of)[last_mark(schedule, mark, unit)];
}

/// The most bytes of a category between two marks of a unit, in the last iteration.
inline std::int64_t most_bytes(const Schedule& schedule, Category of, std::string_view unit, Mark from,
                               Mark to) {
    const std::vector<std::int64_t> bytes = bytes_over_time(schedule, of);
    return *std::max_element(bytes.begin() + static_cast<std::ptrdiff_t>(last_mark(schedule, from, unit)),
                             bytes.begin() + static_cast<std::ptrdiff_t>(last_mark(schedule, to, unit)) + 1);
}

/// Bytes of all buffers of a category that belong to one unit.
inline std::int64_t unit_bytes(const Schedule& schedule, Category of, std::string_view unit) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : schedule.buffers) {
        bytes += buffer.category == of && buffer.unit >= 0 &&
                         schedule.units[static_cast<std::size_t>(buffer.unit)] == unit
                     ? buffer.bytes
                     : 0;
    }
    return bytes;
}

}  // namespace fsdplan::test
