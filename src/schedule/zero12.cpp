#include "schedule/zero12.hpp"

#include <algorithm>
#include <map>

#include "fsdplan/base.hpp"

namespace fsdplan::zero {
namespace {

constexpr std::int64_t most_at_once = 500'000'000;  // elements of one all-reduce without ZeRO's buckets

std::size_t at(std::int32_t row) {
    return static_cast<std::size_t>(row);
}

/// A part of a bucket that goes to one rank.
struct Piece {
    std::int64_t rank = 0;
    std::int64_t numel = 0;
};

/// Sums of consecutive sizes, each closed when it exceeds `limit`.
std::vector<std::int64_t> sums_beyond(const std::vector<std::int64_t>& sizes, std::int64_t limit) {
    std::vector<std::int64_t> sums;
    std::int64_t sum = 0;
    bool open = false;
    for (const std::int64_t size : sizes) {
        sum += size;
        open = true;
        if (sum > limit) {
            sums.push_back(sum);
            sum = 0;
            open = false;
        }
    }
    if (open) {
        sums.push_back(sum);
    }
    return sums;
}

class Reducer {
public:
    Reducer(std::span<const Parameter> parameters, const Options& options, std::vector<Event>& out)
        : parameters_(parameters), options_(options), groups_(flat_groups(parameters, options)), out_(out) {
        place_.resize(parameters.size());
        for (const FlatGroup& group : groups_) {
            for (std::size_t i = 0; i < group.parameters.size(); ++i) {
                place_[at(group.parameters[i])] = group.offsets[i];
            }
        }
    }

    void add(std::int32_t row) {
        const std::int64_t numel = parameters_[at(row)].numel;
        if (numel == 0) {
            return;
        }
        if (numel_ + numel > options_.reduce_bucket_size) {
            flush();
        }
        bucket_.push_back(row);
        numel_ += numel;
    }

    void flush() {
        if (!bucket_.empty()) {
            reduce();
        }
        bucket_.clear();
        numel_ = 0;
    }

private:
    void send(CollectiveKind kind, std::int64_t numel, Purpose purpose, std::int32_t destination = -1) {
        out_.push_back(
            {.pass = Pass::backward,
             .purpose = purpose,
             .call = world_call(options_, kind, options_.wire_dtype(), numel, numel, Reduction::sum),
             .destination = destination,
             .parameters = bucket_});
    }

    void reduce() {
        if (!options_.contiguous_gradients) {
            // Without a buffer of its own the bucket is flattened and summed as it is.
            send(CollectiveKind::all_reduce, numel_, Purpose::gradients);
        } else if (!options_.reduce_scatter) {
            send(CollectiveKind::all_reduce, numel_, Purpose::undivided_gradients);
        } else if (options_.use_multi_rank_bucket_allreduce) {
            std::vector<std::int64_t> sizes;
            for (const Piece& piece : pieces()) {
                sizes.push_back(piece.numel);
            }
            for (const std::int64_t sum : sums_beyond(sizes, options_.reduce_bucket_size)) {
                send(CollectiveKind::all_reduce, sum, Purpose::gradients);
            }
        } else {
            reduce_to_owners();
        }
    }

    void reduce_to_owners() {
        std::vector<std::int64_t> ranks;  // as they appear
        std::map<std::int64_t, std::vector<std::int64_t>> sizes;
        for (const Piece& piece : pieces()) {
            if (!sizes.contains(piece.rank)) {
                ranks.push_back(piece.rank);
            }
            sizes[piece.rank].push_back(piece.numel);
        }
        for (const std::int64_t rank : ranks) {
            for (const std::int64_t sum : sums_beyond(sizes[rank], options_.reduce_bucket_size)) {
                send(CollectiveKind::reduce, sum, Purpose::gradients, static_cast<std::int32_t>(rank));
            }
        }
    }

    /// Where the bucket's parameters lie, neighbours of one rank merged.
    std::vector<Piece> pieces() const {
        std::vector<Piece> out;
        for (const std::int32_t row : bucket_) {
            const Parameter& parameter = parameters_[at(row)];
            const std::int64_t partition = groups_[at(parameter.group)].partition_numel;
            const std::int64_t end = place_[at(row)] + parameter.numel;
            for (std::int64_t from = place_[at(row)]; from < end;) {
                const std::int64_t rank = from / partition;
                const std::int64_t to = std::min(end, (rank + 1) * partition);
                if (out.empty() || out.back().rank != rank) {
                    out.push_back({.rank = rank});
                }
                out.back().numel += to - from;
                from = to;
            }
        }
        return out;
    }

    std::span<const Parameter> parameters_;
    const Options& options_;
    std::vector<FlatGroup> groups_;
    std::vector<std::int64_t> place_;  // offset in its group, by parameter
    std::vector<Event>& out_;
    std::vector<std::int32_t> bucket_;
    std::int64_t numel_ = 0;
};

/// All gradients in as few all-reduces as possible; parameters without one send zeros.
void reduce_all(const std::vector<std::int64_t>& sizes, const Options& options, std::vector<Event>& out) {
    for (const std::int64_t sum : sums_beyond(sizes, most_at_once)) {
        out.push_back({.pass = Pass::backward,
                       .purpose = Purpose::gradients,
                       .call = world_call(options, CollectiveKind::all_reduce, options.wire_dtype(), sum, sum,
                                          Reduction::sum)});
    }
}

void reduce_gradients(std::span<const Parameter> parameters, const Options& options,
                      std::span<const std::int32_t> ready, bool boundary, std::vector<Event>& out) {
    if (options.stage < 2 && !boundary) {
        return;
    }
    if (options.stage == 0 || uses_float32_gradients(options)) {
        std::vector<std::int64_t> sizes;
        if (options.stage == 0) {
            for (const Parameter& parameter : parameters) {
                if (parameter.trainable && parameter.numel > 0) {
                    sizes.push_back(parameter.numel);
                }
            }
        } else {
            for (const FlatGroup& group : stored_groups(parameters, options)) {
                sizes.push_back(group.flat_numel);
            }
        }
        reduce_all(sizes, options, out);
        return;
    }
    Reducer reducer(parameters, options, out);
    if (options.stage == 2 || options.overlap_comm) {
        for (const std::int32_t row : ready) {
            reducer.add(row);
        }
    } else {  // after backward, in the optimizer's order
        for (std::int32_t g = 0; g < group_count(parameters); ++g) {
            for (const std::int32_t row : group_members(parameters, g)) {
                if (std::ranges::find(ready, row) != ready.end()) {
                    reducer.add(row);
                }
            }
        }
    }
    reducer.flush();
}

void step(std::span<const Parameter> parameters, const Options& options, std::vector<Event>& out) {
    const auto add = [&](Purpose purpose, const CollectiveCall& call) {
        out.push_back({.pass = Pass::optimizer, .purpose = purpose, .call = call});
    };
    if (options.stage == 0) {
        // Only the plain optimizer of a float32 model leaves the clipping to the engine, which compares
        // norms.
        if (options.dtype == DType::float32 && options.clips_gradients) {
            add(Purpose::norm,
                world_call(options, CollectiveKind::all_reduce, DType::float32, 1, 1, Reduction::sum));
        }
        return;
    }
    const std::vector<FlatGroup> groups = stored_groups(parameters, options);
    if (!uses_float32_gradients(options)) {
        if (options.dtype != DType::float32) {
            add(Purpose::overflow,
                world_call(options, CollectiveKind::all_reduce, DType::uint8, 1, 1, Reduction::maximum));
        }
        for (std::size_t g = 0; g < groups.size(); ++g) {
            add(Purpose::norm,
                world_call(options, CollectiveKind::all_reduce, DType::float32, 1, 1, Reduction::sum));
        }
    }
    for (const FlatGroup& group : groups) {
        if (options.ranks > 1) {
            add(Purpose::updated_parameters, world_call(options, CollectiveKind::all_gather, options.dtype,
                                                        group.partition_numel, group.flat_numel));
        }
    }
}

}  // namespace

bool uses_float32_gradients(const Options& options) {
    return options.stage == 1 && options.dtype == DType::bfloat16 && options.float32_accumulation;
}

std::vector<FlatGroup> stored_groups(std::span<const Parameter> parameters, const Options& options) {
    Options plain = options;
    if (uses_float32_gradients(options)) {  // knows neither
        plain.round_robin_gradients = false;
        plain.parameter_alignment = false;
    }
    return flat_groups(parameters, plain);
}

std::vector<Event> zero12_iteration(std::span<const Parameter> parameters, const Options& options,
                                    std::span<const std::int32_t> ready) {
    FSDPLAN_ASSERT(options.stage >= 0 && options.stage <= 2, "stage 3 has rules of its own");
    std::vector<Event> out;
    for (std::int64_t micro = 0; micro < options.accumulate; ++micro) {
        const bool boundary = micro + 1 == options.accumulate;
        reduce_gradients(parameters, options, ready, boundary, out);
        if (boundary) {
            step(parameters, options, out);
        } else {
            out.push_back({.kind = Event::Kind::microbatch_end, .pass = Pass::optimizer});
        }
    }
    return out;
}

}  // namespace fsdplan::zero
