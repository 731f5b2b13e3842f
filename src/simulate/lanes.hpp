#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fsdplan/simulate.hpp"

namespace fsdplan {

constexpr std::size_t op_kind_count = 14;
constexpr std::size_t rank_group_count = 4;
static_assert(static_cast<std::size_t>(OpKind::mark) + 1 == op_kind_count);
static_assert(static_cast<std::size_t>(RankGroup::world) + 1 == rank_group_count);

/// What runs operations one after the other: the streams, then the host.
constexpr std::size_t host_lane = stream_count;
constexpr std::size_t lane_count = stream_count + 1;

/// Keeps a stream busy.
constexpr bool works_on_device(OpKind kind) {
    return kind == OpKind::compute || kind == OpKind::collective || kind == OpKind::copy ||
           kind == OpKind::to_device || kind == OpKind::to_host;
}

constexpr bool waits(OpKind kind) {
    return kind == OpKind::wait || kind == OpKind::block;
}

constexpr bool on_stream(OpKind kind) {
    return works_on_device(kind) || kind == OpKind::record || kind == OpKind::wait;
}

/// The device waits for other ranks.
constexpr bool is_collective(Cause cause) {
    return cause == Cause::gather || cause == Cause::reduce || cause == Cause::broadcast;
}

constexpr std::size_t lane_of(const Op& op) {
    return on_stream(op.kind) ? static_cast<std::size_t>(op.stream) : host_lane;
}

}  // namespace fsdplan
