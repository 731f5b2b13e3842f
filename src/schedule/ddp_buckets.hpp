#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsdplan/schedule.hpp"

// torch.nn.parallel.DistributedDataParallel: which gradients travel together, when, and what is sent besides.
namespace fsdplan::ddp {

/// In registration order, each object once, frozen ones too.
struct Parameter {
    DType dtype = DType::float32;
    std::int64_t numel = 0;
    bool trainable = true;
    bool ignored = false;  ///< _ddp_params_and_buffers_to_ignore
    bool sparse = false;   ///< its gradient is (Embedding(sparse=True))
};

/// A buffer of the model that is not ignored.
struct ModuleBuffer {
    DType dtype = DType::float32;
    std::int64_t numel = 0;
};

struct Options {
    std::optional<std::int64_t> bucket_cap_bytes;  ///< bucket_cap_mb, when it was given
    std::vector<std::int64_t> bucket_cap_list;     ///< bucket_cap_mb_list in bytes; wins over the cap
    bool find_unused_parameters = false;
    bool static_graph = false;
    bool broadcast_buffers = true;
    bool init_sync = true;
    std::optional<DType> hook_dtype;  ///< of a communication hook that casts, such as fp16_compress_hook
    std::int64_t ranks = 1;
    std::int64_t accumulate = 1;  ///< micro-batches an iteration, all but the last under no_sync
    /// Numbers that describe the shapes: size and stride of every dimension of every reduced parameter.
    std::int64_t shape_numbers = 0;
};

struct Bucket {
    DType dtype = DType::float32;
    std::int64_t numel = 0;
    std::vector<std::int32_t> parameters;  ///< rows of the parameter list, in the order of the bucket
};

constexpr std::int64_t no_limit = INT64_MAX;

/// Buckets of `order` in the order in which they are closed.
///
/// Each dtype fills a bucket of its own until it holds at least its limit in bytes, then goes to the next of
/// `limits` (the last one repeats). What is left over at the end is closed from the dtype seen last to the
/// one seen first: the order of the hash table that libstdc++ gives c10d's compute_bucket_assignment_by_size
/// (sure for two dtypes). A sparse gradient is alone.
std::vector<Bucket> assign_buckets(std::span<const Parameter> parameters, std::span<const std::int32_t> order,
                                   std::span<const std::int64_t> limits);

/// Rows of the parameters that are reduced.
std::vector<std::int32_t> reduced_parameters(std::span<const Parameter> parameters);

/// What DDP decides when it is constructed.
std::vector<std::int64_t> initial_limits(const Options& options);
std::vector<Bucket> initial_buckets(std::span<const Parameter> parameters, const Options& options);

/// Buckets for the gradients in the order in which they became ready; parameters without one come last.
std::vector<Bucket> rebuilt_buckets(std::span<const Parameter> parameters, const Options& options,
                                    std::span<const std::int32_t> ready);

/// Whether buckets are rebuilt at all.
bool rebuilds(const Options& options);

/// The larger of all limits: what DDP calls its bucket cap.
std::int64_t bucket_cap(const Options& options);

/// Collectives of the constructor.
std::vector<CollectiveCall> construction(std::span<const Parameter> parameters,
                                         std::span<const ModuleBuffer> buffers, const Options& options);

struct Event {
    enum class Kind : std::uint8_t { forward_begin, backward_begin, gradient, collective, backward_end };
    Kind kind{};
    std::int32_t parameter = -1;  ///< of a gradient
    std::int32_t bucket = -1;     ///< of the all-reduce of one, in the order of reduction
    CollectiveCall call{};        ///< of a collective
};

/// DDP's side of a training, told what the model does in the order in which it does it. Every call returns
/// the collectives that DDP starts in answer.
class Reducer {
public:
    Reducer(std::vector<Parameter> parameters, std::vector<ModuleBuffer> buffers, Options options);

    /// Before a forward. `synchronised`: not under no_sync.
    std::vector<Event> forward(bool synchronised);
    /// The gradient of a parameter is complete; `again`: reentrant checkpoints will add to it once more.
    std::vector<Event> gradient(std::int32_t parameter);
    /// Before a backward pass that will call gradient() for these, in which order ever.
    void backward(std::span<const std::int32_t> gradients);
    std::vector<Event> backward_end();

    /// Whether a bucket waits for gradients that never came: the next forward raises RuntimeError.
    bool stuck() const { return started_ && next_ < buckets_.size(); }
    const std::vector<Bucket>& buckets() const { return buckets_; }
    bool rebuilt() const { return rebuilt_; }

private:
    void mark_ready(std::int32_t parameter);
    void start_buckets(std::vector<Event>& out);
    void use(std::vector<Bucket> buckets);
    Event small(CollectiveKind kind, DType dtype, std::int64_t numel) const;

    std::vector<Parameter> parameters_;
    std::vector<ModuleBuffer> buffers_;
    Options options_;
    std::vector<std::int32_t> reduced_;

    std::vector<Bucket> buckets_;
    std::vector<std::int32_t> bucket_of_;  // by parameter; -1: not reduced
    std::vector<std::int64_t> missing_;    // gradients that each bucket waits for
    std::size_t next_ = 0;                 // bucket to be started next
    std::vector<std::int32_t> ready_;      // order for the rebuild
    std::vector<std::int32_t> awaited_;    // calls of gradient() still to come, by parameter

    bool synchronised_ = true;  // the current forward
    bool synchronise_buffers_ = true;
    bool started_ = false;
    bool rebuilt_ = false;
    std::int64_t rounds_ = 0;  // synchronised forwards
};

/// Why DDP stopped.
struct Refusal {
    enum class Reason : std::uint8_t {
        unfinished,           ///< gradients that a bucket waits for never came; raised by the next forward
        static_accumulation,  ///< a static graph is learnt in the first backward, even under no_sync
    };
    Reason reason{};
    std::int64_t iteration = 0;
};

struct Training {
    std::vector<std::vector<Event>> iterations;
    std::optional<Refusal> refusal;
    /// For each iteration the sizes in bytes of the rebuilt buckets, once a synchronised forward has reported
    /// them; and the number of buckets reduced before the last such report.
    std::vector<std::vector<std::int64_t>> reported_buckets;
    std::int64_t reported_reductions = 0;
};

/// `iterations` of a training whose every backward leaves gradients in the order `ready` (rows of
/// `parameters`, ignored ones too; a row more than once when reentrant checkpoints add to it repeatedly).
Training train(std::span<const Parameter> parameters, std::span<const ModuleBuffer> buffers,
               const Options& options, std::span<const std::int32_t> ready, std::int64_t iterations);

}  // namespace fsdplan::ddp
