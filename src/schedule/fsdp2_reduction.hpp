#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "schedule/fsdp2_group.hpp"

// How fully_shard's gradients become gradients of shards.
// Source: foreach_reduce in torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, and
// _fsdp_param_group.py of PyTorch 2.13.
namespace fsdplan::fsdp2 {

/// Reductions of all groups of a model, which follow one another. A post-backward calls collect(), reduce()
/// and release_last_gradient() in turn.
class Reductions {
public:
    Reductions(const TrainingJob& job, Emitter& emit);

    /// Takes the gradients out of the group's members.
    void collect(Group& g);
    /// Reduces what was collected; `all_reduces`: over replicas too, where there are any.
    void reduce(Group& g, bool all_reduces);
    /// The post-backward returns, and with it goes the variable that held one gradient to the end.
    void release_last_gradient();

    /// At the end of backward computation waits for the reductions.
    void finalize(Group& g);
    /// The end of backward waits for the inputs of the reductions that are left.
    void release_inputs();

private:
    /// A gradient that goes into a reduction: its member and the buffer that holds it.
    struct Gradient {
        Member* member = nullptr;
        std::int32_t buffer = -1;
        std::int32_t source = -1;       // what is copied: that, or its rearranged copy
        std::int64_t padded_numel = 0;  // on all ranks
    };
    struct Factors {
        double before = 1;
        double after = 1;
        Reduction scatter = Reduction::average;
        Reduction all_reduce = Reduction::average;
    };
    /// What the reduce-scatter left.
    struct Output {
        std::int32_t buffer = -1;
        std::int64_t numel = 0;
        DType dtype{};
        Factors factors;
    };
    struct Input {
        std::int32_t buffer;
        std::int32_t event;  // of the reduction that reads it
    };

    std::int32_t rearrange();
    std::int32_t copy_in(Group& g, std::int64_t numel, DType dtype);
    std::int32_t release_copied(const Group& g);
    Output reduce_scatter(Group& g, std::int64_t numel, DType dtype);
    void finish(Group& g, const Output& out, bool all_reduces);
    void keep_partial(Group& g, const Output& out);
    void all_reduce(const Group& g, const Output& out);
    void to_sharded_gradient(Group& g, const Output& out, Stream last);
    std::int32_t to_host(Group& g, std::int32_t gradient, std::int64_t numel, Stream stream);
    Factors factors_of(const Group& g, DType dtype) const;
    void divide(double factor, std::int64_t numel, DType dtype, std::int32_t unit, Stream stream);
    std::int32_t reduce_buffer(Group& g, std::int64_t numel, DType dtype, Category category, Stream stream,
                               bool on_host = false);
    void release_oldest_input();

    const TrainingJob& job_;
    const TorchBehaviour& torch_;
    Emitter& emit_;
    const bool replicated_;
    std::vector<Gradient> gradients_;  // of the reduction under way
    std::deque<Input> inputs_;
    std::int32_t kept_by_caller_ = -1;  // gradient that outlives its post-backward
    Stream post_reduce_ = reduce_scatter_stream;
};

}  // namespace fsdplan::fsdp2
