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

/// All gradients in as few all-reduces as possible; parameters without one send zeros.
void reduce_all(const std::vector<std::int64_t>& sizes, const Options& options, std::vector<Event>& out) {
    for (const std::int64_t sum : sums_beyond(sizes, most_at_once)) {
        out.push_back({.pass = Pass::backward,
                       .purpose = Purpose::gradients,
                       .call = world_call(options, CollectiveKind::all_reduce, options.wire_dtype(), sum, sum,
                                          Reduction::sum)});
    }
}

}  // namespace

BucketReducer::BucketReducer(std::vector<Parameter> parameters, const Options& options)
    : parameters_(std::move(parameters)),
      options_(options),
      groups_(flat_groups(parameters_, options_)),
      place_(parameters_.size(), 0) {
    for (const FlatGroup& group : groups_) {
        for (std::size_t i = 0; i < group.parameters.size(); ++i) {
            place_[at(group.parameters[i])] = group.offsets[i];
        }
    }
}

std::vector<Event> BucketReducer::add(std::int32_t row) {
    const std::int64_t numel = parameters_[at(row)].numel;
    std::vector<Event> out;
    if (numel == 0) {
        return out;
    }
    if (numel_ + numel > options_.reduce_bucket_size) {
        out = flush();
    }
    bucket_.push_back(row);
    numel_ += numel;
    return out;
}

std::vector<Event> BucketReducer::flush() {
    std::vector<Event> out;
    if (!bucket_.empty()) {
        reduce(out);
    }
    bucket_.clear();
    numel_ = 0;
    return out;
}

void BucketReducer::send(CollectiveKind kind, std::int64_t numel, Purpose purpose, std::int32_t destination,
                         std::vector<Event>& out) const {
    out.push_back({.pass = Pass::backward,
                   .purpose = purpose,
                   .call = world_call(options_, kind, options_.wire_dtype(), numel, numel, Reduction::sum),
                   .destination = destination,
                   .parameters = bucket_});
}

void BucketReducer::reduce(std::vector<Event>& out) const {
    if (!options_.contiguous_gradients) {
        // Without a buffer of its own the bucket is flattened and summed as it is.
        send(CollectiveKind::all_reduce, numel_, Purpose::gradients, -1, out);
    } else if (!options_.reduce_scatter) {
        send(CollectiveKind::all_reduce, numel_, Purpose::undivided_gradients, -1, out);
    } else if (options_.use_multi_rank_bucket_allreduce) {
        std::vector<std::int64_t> sizes;
        for (const Piece& piece : pieces()) {
            sizes.push_back(piece.numel);
        }
        for (const std::int64_t sum : sums_beyond(sizes, options_.reduce_bucket_size)) {
            send(CollectiveKind::all_reduce, sum, Purpose::gradients, -1, out);
        }
    } else {
        reduce_to_owners(out);
    }
}

void BucketReducer::reduce_to_owners(std::vector<Event>& out) const {
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
            send(CollectiveKind::reduce, sum, Purpose::gradients, static_cast<std::int32_t>(rank), out);
        }
    }
}

/// Where the bucket's parameters lie, neighbours of one rank merged.
std::vector<BucketReducer::Piece> BucketReducer::pieces() const {
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

bool reduces_during_backward(const Options& options) {
    return options.stage == 2 ||
           (options.stage == 1 && options.overlap_comm && !uses_float32_gradients(options));
}

std::vector<Event> reduce_after_backward(std::span<const Parameter> parameters, const Options& options,
                                         std::span<const std::int32_t> ready) {
    std::vector<Event> out;
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
        return out;
    }
    BucketReducer reducer({parameters.begin(), parameters.end()}, options);
    const auto append = [&](const std::vector<Event>& more) {
        out.insert(out.end(), more.begin(), more.end());
    };
    for (std::int32_t g = 0; g < group_count(parameters); ++g) {  // in the optimizer's order
        for (const std::int32_t row : group_members(parameters, g)) {
            if (std::ranges::find(ready, row) != ready.end()) {
                append(reducer.add(row));
            }
        }
    }
    append(reducer.flush());
    return out;
}

std::vector<Event> checks_before_step(std::span<const Parameter> parameters, const Options& options) {
    std::vector<Event> out;
    const auto add = [&](Purpose purpose, DType dtype, Reduction reduction) {
        out.push_back({.pass = Pass::optimizer,
                       .purpose = purpose,
                       .call = world_call(options, CollectiveKind::all_reduce, dtype, 1, 1, reduction)});
    };
    if (options.stage == 0) {
        // Only the plain optimizer of a float32 model leaves the clipping to the engine, which compares
        // norms.
        if (options.dtype == DType::float32 && options.clips_gradients) {
            add(Purpose::norm, DType::float32, Reduction::sum);
        }
    } else if (!uses_float32_gradients(options)) {
        if (options.dtype != DType::float32) {
            add(Purpose::overflow, DType::uint8, Reduction::maximum);
        }
        for (std::int32_t g = 0; g < group_count(parameters); ++g) {
            add(Purpose::norm, DType::float32, Reduction::sum);
        }
    }
    return out;
}

std::vector<Event> gathers_after_step(std::span<const Parameter> parameters, const Options& options) {
    std::vector<Event> out;
    if (options.stage == 0 || options.ranks == 1) {
        return out;
    }
    for (const FlatGroup& group : stored_groups(parameters, options)) {
        out.push_back({.pass = Pass::optimizer,
                       .purpose = Purpose::updated_parameters,
                       .call = world_call(options, CollectiveKind::all_gather, options.dtype,
                                          group.partition_numel, group.flat_numel)});
    }
    return out;
}

std::vector<Event> zero12_iteration(std::span<const Parameter> parameters, const Options& options,
                                    std::span<const std::int32_t> ready) {
    FSDPLAN_ASSERT(options.stage >= 0 && options.stage <= 2, "stage 3 has rules of its own");
    std::vector<Event> out;
    const auto append = [&](const std::vector<Event>& more) {
        out.insert(out.end(), more.begin(), more.end());
    };
    for (std::int64_t micro = 0; micro < options.accumulate; ++micro) {
        const bool boundary = micro + 1 == options.accumulate;
        if (reduces_during_backward(options) && (boundary || options.stage == 2)) {
            BucketReducer reducer({parameters.begin(), parameters.end()}, options);
            for (const std::int32_t row : ready) {
                append(reducer.add(row));
            }
            append(reducer.flush());
        } else if (boundary) {
            append(reduce_after_backward(parameters, options, ready));
        }
        if (!boundary) {
            out.push_back({.kind = Event::Kind::microbatch_end, .pass = Pass::optimizer});
        }
    }
    append(checks_before_step(parameters, options));
    append(gathers_after_step(parameters, options));
    return out;
}

}  // namespace fsdplan::zero
