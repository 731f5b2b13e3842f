#include "fsdplan/schedule.hpp"

namespace fsdplan {

std::string_view name(CollectiveKind kind) {
    switch (kind) {
        case CollectiveKind::all_gather:
            return "all_gather";
        case CollectiveKind::reduce_scatter:
            return "reduce_scatter";
        case CollectiveKind::all_reduce:
            return "all_reduce";
        case CollectiveKind::broadcast:
            return "broadcast";
        case CollectiveKind::reduce:
            return "reduce";
    }
    return "";
}

Bytes Collective::full_size() const {
    return bytes_of(kind == CollectiveKind::all_gather ? output_numel : input_numel, dtype);
}

Bytes Collective::sent() const {
    const std::int64_t full = full_size().count;
    switch (kind) {
        case CollectiveKind::all_gather:
        case CollectiveKind::reduce_scatter:
            return {ceil_div(full, ranks) * (ranks - 1)};
        case CollectiveKind::all_reduce:
            return {ceil_div(full, ranks) * (ranks - 1) * 2};
        case CollectiveKind::broadcast:
        case CollectiveKind::reduce:
            return {full};
    }
    return {};
}

std::vector<Collective> traffic_of(const Schedule& schedule) {
    std::vector<std::int32_t> place(schedule.collectives.size(), -1);
    std::vector<Collective> out;
    for (const Op& op : schedule.iteration(schedule.iteration_begin.size() - 1)) {
        if (op.kind != OpKind::collective) {
            continue;
        }
        std::int32_t& row = place[static_cast<std::size_t>(op.target)];
        if (row < 0) {
            const CollectiveCall& call = schedule.collectives[static_cast<std::size_t>(op.target)];
            row = static_cast<std::int32_t>(out.size());
            out.push_back({.kind = call.kind,
                           .group = call.group,
                           .dtype = call.dtype,
                           .input_numel = call.input_numel,
                           .output_numel = call.output_numel,
                           .ranks = call.ranks});
        }
        ++out[static_cast<std::size_t>(row)].count;
    }
    return out;
}

std::int64_t sent_bytes(const std::vector<Collective>& collectives) {
    std::int64_t bytes = 0;
    for (const Collective& call : collectives) {
        bytes += call.sent().count * call.count;
    }
    return bytes;
}

RowShard row_shard(std::span<const std::int64_t> shape, std::int64_t ranks, std::int64_t rank) {
    if (shape.empty()) {
        return {.padded_rows = 1, .owned_rows = rank == 0 ? 1 : 0};
    }
    RowShard shard;
    for (const std::int64_t size : shape.subspan(1)) {
        shard.row_numel *= size;
    }
    const std::int64_t rows = shape.front();
    shard.padded_rows = ceil_div(rows, ranks);
    const std::int64_t begin = std::min(rows, rank * shard.padded_rows);
    shard.owned_rows = std::min(rows, begin + shard.padded_rows) - begin;
    return shard;
}

}  // namespace fsdplan
