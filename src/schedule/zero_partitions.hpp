#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fsdplan/schedule.hpp"

// DeepSpeed ZeRO: options, what each rank stores, and the events of a training. Rules: DeepSpeed 0.19.
namespace fsdplan::zero {

/// In the order of named_parameters(), each object once, frozen ones too.
struct Parameter {
    std::int64_t numel = 0;
    bool trainable = true;
    std::int32_t group = 0;    ///< of the optimizer
    std::int32_t created = 0;  ///< stage 3: place in the order in which parameters were made
};

/// What a DeepSpeed configuration says beside zero_optimization, with DeepSpeed's defaults.
struct RunOptions {
    int stage = 1;
    DType dtype = DType::bfloat16;             ///< of the parameters
    std::optional<DType> communication_dtype;  ///< communication_data_type
    std::int64_t ranks = 1;
    std::int64_t accumulate = 1;  ///< gradient_accumulation_steps
    bool clips_gradients = true;  ///< gradient_clipping is not 0
};
struct Options : RunOptions, ZeroOptions {
    DType wire_dtype() const { return communication_dtype.value_or(dtype); }
};

/// Why something is sent.
enum class Purpose : std::uint8_t {
    broadcast_parameter,  ///< construction: rank 0's values, as bytes
    partition_parameter,  ///< stage 3: before a parameter is split
    check_partition,      ///< stage 3: gathers each parameter once
    trace_length,         ///< stage 3: do all ranks have the same list?
    trace_list,
    gradients,            ///< a bucket, summed and then cut up
    undivided_gradients,  ///< a bucket, with reduce_scatter off
    scattered_gradients,  ///< stage 3
    overflow,
    norm,
    updated_parameters,     ///< stages 1 and 2: the flat buffer of a group
    external_parameter,     ///< stage 3: one that another module reads
    fetch,                  ///< stage 3: parameters that a module is about to use, or will soon
    persistent_parameters,  ///< stage 3: those that stay gathered
};

struct Event {
    enum class Kind : std::uint8_t { collective, microbatch_end };
    Kind kind = Kind::collective;
    Pass pass = Pass::forward;
    Purpose purpose{};
    CollectiveCall call{};
    std::int32_t destination = -1;           ///< rank that a reduce leaves its result on
    std::int32_t module = -1;                ///< of a fetch: whose hook asked for it
    bool prefetched = false;                 ///< … ahead of its use
    std::vector<std::int32_t> parameters{};  ///< gathered or reduced

    friend bool operator==(const Event&, const Event&) = default;
};

/// A call of all ranks.
CollectiveCall world_call(const Options& options, CollectiveKind kind, DType dtype, std::int64_t input,
                          std::int64_t output, Reduction reduction = Reduction::none);

/// One optimizer group of stages 1 and 2 in one buffer, cut into equal partitions regardless of parameters.
struct FlatGroup {
    std::vector<std::int32_t> parameters;  ///< in the order of the buffer
    std::vector<std::int64_t> offsets;     ///< where each begins
    std::int64_t numel = 0;                ///< up to the end of the last parameter
    std::int64_t flat_numel = 0;           ///< padded to a multiple of 2 elements for every rank
    std::int64_t partition_numel = 0;
};

/// What one rank owns of a group.
struct Partition {
    std::vector<std::int32_t> parameters;  ///< that have a part in it
    std::int64_t first_offset = 0;         ///< elements of the first one that belong to earlier ranks
    std::int64_t padding = 0;              ///< elements behind the last parameter
};

/// Number of optimizer groups; those without a trainable parameter count too.
std::int32_t group_count(std::span<const Parameter> parameters);
/// Rows of a group's trainable parameters.
std::vector<std::int32_t> group_members(std::span<const Parameter> parameters, std::int32_t group);

std::vector<FlatGroup> flat_groups(std::span<const Parameter> parameters, const Options& options);
Partition partition_of(const FlatGroup& group, std::span<const Parameter> parameters, std::int64_t rank);

/// What deepspeed.initialize() sends before a stage does anything of its own: every parameter from rank 0.
std::vector<Event> broadcast_parameters(std::span<const Parameter> parameters, const Options& options);

}  // namespace fsdplan::zero
