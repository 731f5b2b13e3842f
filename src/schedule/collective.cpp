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

std::string_view name(Phase phase) {
    switch (phase) {
        case Phase::forward:
            return "forward";
        case Phase::loss:
            return "loss";
        case Phase::backward:
        case Phase::gradient:
            return "backward";
        case Phase::reduce:
            return "gradient reduction";
        case Phase::step:
            return "optimizer step";
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
