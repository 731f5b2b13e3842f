#pragma once

#include <span>
#include <vector>

#include "schedule/zero_partitions.hpp"

// DeepSpeed with whole parameters on every rank: stages 0 (no ZeRO), 1 (optimizer states are partitioned) and
// 2 (gradients too).
namespace fsdplan::zero {

/// Whether stage 1 hands over to the optimizer for bf16 parameters with float32 gradients, which reduces all
/// gradients in the padded buffers and neither checks for overflow nor, apart, for the norm.
bool uses_float32_gradients(const Options& options);

/// Layout of the groups under this optimizer.
std::vector<FlatGroup> stored_groups(std::span<const Parameter> parameters, const Options& options);

/// Whether gradients are reduced as they become ready; otherwise all are after the last backward.
bool reduces_during_backward(const Options& options);

/// Gradients in buckets, added one by one in the order of reduction.
class BucketReducer {
public:
    BucketReducer(std::vector<Parameter> parameters, const Options& options);

    /// What is sent before the gradient of `row` is taken in.
    std::vector<Event> add(std::int32_t row);
    std::vector<Event> flush();

private:
    /// A part of a bucket that goes to one rank.
    struct Piece {
        std::int64_t rank = 0;
        std::int64_t numel = 0;
    };
    void send(CollectiveKind kind, std::int64_t numel, Purpose purpose, std::int32_t destination,
              std::vector<Event>& out) const;
    void reduce(std::vector<Event>& out) const;
    void reduce_to_owners(std::vector<Event>& out) const;
    std::vector<Piece> pieces() const;

    std::vector<Parameter> parameters_;
    Options options_;
    std::vector<FlatGroup> groups_;
    std::vector<std::int64_t> place_;  // offset in its group, by parameter
    std::vector<std::int32_t> bucket_;
    std::int64_t numel_ = 0;
};

/// Reductions after the backward of the last micro-batch, where there are none during it.
std::vector<Event> reduce_after_backward(std::span<const Parameter> parameters, const Options& options,
                                         std::span<const std::int32_t> ready);
/// Overflow and norm.
std::vector<Event> checks_before_step(std::span<const Parameter> parameters, const Options& options);
std::vector<Event> gathers_after_step(std::span<const Parameter> parameters, const Options& options);

/// One iteration; all are alike. `ready`: rows of the trainable parameters in the order in which their
/// gradients become ready, without those that get none.
std::vector<Event> zero12_iteration(std::span<const Parameter> parameters, const Options& options,
                                    std::span<const std::int32_t> ready);

}  // namespace fsdplan::zero
