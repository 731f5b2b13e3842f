#include "schedule/zero_partitions.hpp"

#include <algorithm>
#include <numeric>

namespace fsdplan::zero {
namespace {

constexpr std::int64_t elements_per_rank = 2;  // a partition begins at 4 bytes of half precision
constexpr std::int64_t aligned_bytes = 16;     // parameter_alignment

// Parameters 0, W, 2W, … first: those that backward finishes one after the other then belong to different
// ranks.
std::vector<std::int32_t> dealt_out(const std::vector<std::int32_t>& rows, std::int64_t ranks) {
    std::vector<std::int32_t> out;
    const auto step = static_cast<std::size_t>(ranks);
    for (std::size_t first = 0; first < std::min(step, rows.size()); ++first) {
        for (std::size_t i = first; i < rows.size(); i += step) {
            out.push_back(rows[i]);
        }
    }
    return out;
}

}  // namespace

CollectiveCall world_call(const Options& options, CollectiveKind kind, DType dtype, std::int64_t input,
                          std::int64_t output, Reduction reduction) {
    return {.kind = kind,
            .group = RankGroup::world,
            .dtype = dtype,
            .reduction = reduction,
            .ranks = options.ranks,
            .input_numel = input,
            .output_numel = output};
}

std::int32_t group_count(std::span<const Parameter> parameters) {
    std::int32_t count = 0;
    for (const Parameter& parameter : parameters) {
        count = std::max(count, parameter.group + 1);
    }
    return count;
}

std::vector<std::int32_t> group_members(std::span<const Parameter> parameters, std::int32_t group) {
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].trainable && parameters[i].group == group) {
            rows.push_back(static_cast<std::int32_t>(i));
        }
    }
    return rows;
}

std::vector<FlatGroup> flat_groups(std::span<const Parameter> parameters, const Options& options) {
    const std::int64_t element = bytes_of(1, options.dtype).count;
    const std::int64_t alignment =
        options.parameter_alignment ? aligned_bytes / std::gcd(aligned_bytes, element) : 1;
    std::vector<FlatGroup> groups;
    for (std::int32_t g = 0; g < group_count(parameters); ++g) {
        FlatGroup group{.parameters = group_members(parameters, g)};
        if (options.round_robin_gradients) {
            group.parameters = dealt_out(group.parameters, options.ranks);
        }
        for (const std::int32_t row : group.parameters) {
            group.offsets.push_back(round_up(group.numel, alignment));
            group.numel = group.offsets.back() + parameters[static_cast<std::size_t>(row)].numel;
        }
        group.flat_numel = round_up(group.numel, elements_per_rank * options.ranks);
        group.partition_numel = group.flat_numel / options.ranks;
        groups.push_back(std::move(group));
    }
    return groups;
}

Partition partition_of(const FlatGroup& group, std::span<const Parameter> parameters, std::int64_t rank) {
    const std::int64_t begin = group.partition_numel * rank;
    const std::int64_t end = begin + group.partition_numel;
    Partition partition{.padding = std::clamp(end - group.numel, std::int64_t{0}, group.partition_numel)};
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
        const std::int64_t from = group.offsets[i];
        const std::int64_t to = from + parameters[static_cast<std::size_t>(group.parameters[i])].numel;
        if (from < begin && begin < to) {
            partition.first_offset = begin - from;
        } else if (from < begin || from >= end) {
            continue;
        }
        partition.parameters.push_back(group.parameters[i]);
    }
    return partition;
}

std::vector<Event> broadcast_parameters(std::span<const Parameter> parameters, const Options& options) {
    std::vector<Event> events;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::int64_t bytes = bytes_of(parameters[i].numel, options.dtype).count;
        events.push_back({.purpose = Purpose::broadcast_parameter,
                          .call = world_call(options, CollectiveKind::broadcast, DType::uint8, bytes, bytes),
                          .parameters = {static_cast<std::int32_t>(i)}});
    }
    return events;
}

}  // namespace fsdplan::zero
