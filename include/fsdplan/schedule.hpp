#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"
#include "fsdplan/job.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/operators.hpp"
#include "fsdplan/wrap.hpp"

// What one training step does with a plan's units: what every rank stores, gathers, reduces and sends.
namespace fsdplan {

enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, reduce };
/// "all_gather", …
std::string_view name(CollectiveKind kind);

/// Which ranks take part.
enum class RankGroup : std::uint8_t {
    shard,
    replicate,
    post_forward,  ///< FSDP2 with an integer reshard_after_forward
    world,         ///< all ranks
};

/// A collective as one rank calls it, and how often in a step.
struct Collective {
    CollectiveKind kind{};
    RankGroup group = RankGroup::shard;
    DType dtype = DType::float32;
    std::int64_t input_numel = 0;
    std::int64_t output_numel = 0;
    std::int64_t ranks = 1;
    std::int64_t count = 0;  ///< calls a step

    /// The full, unsharded size: what nccl-tests calls S.
    Bytes full_size() const;
    /// What one rank sends in one call by a ring: (ranks - 1) / ranks of the full size, twice that for an
    /// all-reduce; rounded up.
    Bytes sent() const;

    friend bool operator==(const Collective&, const Collective&) = default;
};

/// What an operation of a schedule is. Operations stand in the order in which the host issues them.
enum class OpKind : std::uint8_t {
    compute,  ///< kernels: `flops`, `bytes` read and written, `launches`; `target`: row of Schedule::shapes
    collective,  ///< `target`: row of Schedule::collectives
    copy,        ///< `bytes` copied or cast inside device memory
    to_device,   ///< `bytes` from host memory
    to_host,     ///< `bytes` to host memory
    host,        ///< work of the host alone; `target`: a HostWork
    allocate,    ///< `target`: row of Schedule::buffers, which has no memory now
    free,        ///< `target`: a buffer that has
    use,         ///< record_stream: `stream` uses buffer `target` of another stream
    relabel,     ///< buffer `target` counts as Category `detail` from here on
    record,      ///< an event on `stream`
    wait,        ///< `stream` waits for the event that operation `target` recorded; -1: there is none yet
    block,       ///< the host does
    mark,        ///< `detail`: a Mark; `bytes`: its number, if it has one
};
std::string_view name(OpKind kind);

/// Streams of one device; first in, first out each. Their names depend on the runtime.
enum class Stream : std::uint8_t { compute, pre_gather, gather, reduce, all_reduce, transfer };
constexpr std::size_t stream_count = 6;

/// What a buffer holds.
enum class Category : std::uint8_t {
    shard,                ///< sharded parameters
    low_precision_shard,  ///< their cast to the compute dtype (FSDP1)
    unsharded,            ///< gathered parameters
    gather_buffer,        ///< FSDP2: what the all-gather writes
    gather_input,         ///< … and the staging of what it sends
    post_forward_shard,   ///< FSDP2: slice kept between forward and backward (integer reshard_after_forward)
    gradient,             ///< unsharded gradients
    reduce_input,
    reduce_output,
    gradient_shard,
    optimizer,            ///< states
    optimizer_temporary,  ///< while the optimizer steps
    activation,           ///< saved for backward
    logits,               ///< of the head and the loss
    temporary,            ///< inside a computation
    replicated,           ///< parameters that no unit manages, with their gradients and states
    module_buffer,
    input,
    workspace,  ///< of libraries: cuBLAS
};
constexpr std::size_t category_count = 19;
std::string_view name(Category category);

/// Pass of an iteration.
enum class Pass : std::uint8_t { forward, backward, recompute, clip, optimizer };
std::string_view name(Pass pass);

/// Points of the program by which a recording of the real runtime tells where it is.
enum class Mark : std::uint8_t {
    microbatch,     ///< number: which
    forward_begin,  ///< of a unit's module
    forward_end,
    copy_out,              ///< gathered parameters are in place
    reshard,               ///< back to shards; number 0: the memory is kept
    reshard_post_forward,  ///< to a smaller group
    loss,
    pre_backward,
    post_backward,  ///< number: gradients found
    post_backward_end,
    post_backward_frozen,
    final_begin,  ///< callback at the end of backward
    final_end,
    backward_end,
    optimizer_step,
    zero_grad,
};
std::string_view name(Mark mark);

enum class HostWork : std::uint8_t {
    unit_hook,  ///< a unit's pre- or post-forward or -backward
    optimizer,
};

/// What a compute operation spends its FLOPs on.
enum class ComputeKind : std::uint8_t { products, attention };

/// One operation; what it is about stands in the tables of its schedule.
struct Op {
    OpKind kind{};
    Stream stream = Stream::compute;
    Pass pass = Pass::forward;
    std::uint8_t detail = 0;
    std::int32_t unit = -1;       ///< row of Schedule::units; -1: of no unit
    std::int32_t module = -1;     ///< row of the ModuleTree that computes
    std::int32_t target = -1;     ///< see OpKind
    std::int32_t launches = 0;    ///< kernels that the host launches for it
    std::int32_t prefetched = 0;  ///< a gather that nobody waits for yet
    std::int64_t bytes = 0;
    std::int64_t flops = 0;

    friend bool operator==(const Op&, const Op&) = default;
};

enum class Reduction : std::uint8_t { none, sum, average, premultiplied_sum, maximum };
std::string_view name(Reduction reduction);

/// A collective as one rank calls it.
struct CollectiveCall {
    CollectiveKind kind{};
    RankGroup group = RankGroup::shard;
    DType dtype = DType::float32;
    Reduction reduction = Reduction::none;
    std::int64_t ranks = 1;
    std::int64_t input_numel = 0;
    std::int64_t output_numel = 0;

    /// The full, unsharded size: what nccl-tests calls S.
    Bytes full_size() const;
    friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

struct Buffer {
    std::int64_t bytes = 0;
    Category category{};
    Stream stream = Stream::compute;  ///< whose pool it comes from
    bool on_host = false;             ///< pinned host memory: no part of the device's
    std::int32_t unit = -1;
    std::int32_t module = -1;

    friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// Iterations of one rank's training as a list of operations.
///
/// Every target of a wait or block is an earlier record; a buffer is allocated and freed in turn, possibly
/// many times. Operations before the first iteration put in place what lives as long as the training.
struct Schedule {
    std::string runtime;
    std::vector<Op> ops;
    std::vector<std::int64_t> iteration_begin;  ///< first operation of each iteration
    std::vector<Buffer> buffers;
    std::vector<CollectiveCall> collectives;  ///< distinct ones
    std::vector<KernelShape> shapes;          ///< distinct ones, of products and attention
    std::vector<std::string> units;           ///< names: module paths, joined by commas for a group
    std::array<std::string_view, stream_count> stream_names{};

    std::span<const Op> iteration(std::size_t i) const;
};

/// What the user's own computation costs in one call of a module.
struct CallWork {
    std::int64_t flops = 0;  ///< forward
    std::int64_t backward_flops = 0;
    std::int64_t recompute_flops = 0;  ///< forward again, for backward
    std::int64_t bytes = 0;            ///< moved in forward
    std::int64_t backward_bytes = 0;
    std::int64_t saved_bytes = 0;      ///< kept for backward
    std::int64_t input_bytes = 0;      ///< what a checkpoint around the call keeps
    std::int64_t temporary_bytes = 0;  ///< while it runs, in either direction
    std::int32_t launches = 1;
    std::int32_t backward_launches = 2;
    Category saved = Category::activation;
};

/// What a lowering starts from. Everything outlives it.
struct LoweringInput {
    const ModuleTree& tree;
    const WrapPlan& plan;
    const TrainingJob& job;
    /// By row of the tree, for one call; empty: computations cost nothing and save nothing.
    std::span<const CallWork> work{};
    CallWork
        loss{};  ///< saved_bytes: the logits; temporary_bytes: what it adds to them until backward starts
    /// The operators themselves, in place of `work` and `loss`; null: not known.
    const OperatorGraph* operators = nullptr;
    /// That cuBLAS keeps for each thread that multiplies matrices: one in forward, one in backward.
    std::int64_t workspace_bytes = 0;
    std::int64_t multiprocessors = 132;  ///< of the GPU
    /// Tensors of a batch (token ids, labels, …), which stay on the device.
    std::span<const std::int64_t> input_bytes{};
    /// Parameters that no computation reads, where the model's file cannot say so.
    std::span<const TensorIndex> unread{};
    /// Whose pieces of the parameters; absent: those of the rank for which the optimizer keeps most.
    std::optional<std::int64_t> rank{};
    int iterations = 2;
};

/// The training of a plan as a schedule, by the job's runtime. The plan is one that the runtime accepts.
Schedule lower(const LoweringInput& input);

/// Collectives of the last iteration, equal ones counted together in the order in which they first occur.
std::vector<Collective> traffic_of(const Schedule& schedule);
/// What one rank sends in them.
std::int64_t sent_bytes(const std::vector<Collective>& collectives);

/// One line an operation, for people and for comparing: "3  all_gather  gather  layers.0  …".
std::string to_text(const Schedule& schedule);

/// The first rule that a schedule breaks, or "" (targets in range, events
/// before their waits, buffers allocated and freed in turn).
std::string first_fault(const Schedule& schedule);

/// How FSDP2 splits one parameter by rows.
struct RowShard {
    std::int64_t padded_rows = 0;  ///< stored on every rank
    std::int64_t owned_rows = 0;   ///< of this rank, possibly none
    std::int64_t row_numel = 1;    ///< elements of one row

    std::int64_t padded_numel() const { return padded_rows * row_numel; }
    std::int64_t owned_numel() const { return owned_rows * row_numel; }
};
RowShard row_shard(std::span<const std::int64_t> shape, std::int64_t ranks, std::int64_t rank);

/// What the parameters of a runtime are to an optimizer.
enum class ParameterForm : std::uint8_t {
    whole,  ///< the model's own
    rows,   ///< DTensors that ranks share by rows
    flat,   ///< pieces of flat parameters, without a shape of their own
};

/// A runtime: what it stores, gathers and reduces. An entry is one file in src/schedule/builtin.
struct RuntimeInfo {
    std::string_view name;
    std::string_view help;
    bool wraps_by_policy;                  ///< FSDP1's constructor: units come from an auto_wrap_policy
    bool has_units;                        ///< false: the model stays whole (DDP)
    std::span<const Strategy> strategies;  ///< the first is the default
    Schedule (*lower)(const LoweringInput& input);
    ParameterForm parameters = ParameterForm::whole;
    /// What it refuses about a job beyond what drawing the boundaries has found; null: nothing.
    std::vector<Diagnostic> (*refusals)(const ModuleTree& tree, const WrapPlan& plan,
                                        const TrainingJob& job) = nullptr;
    /// Parameters are views of one for each unit: with one that is trainable autograd tracks them all.
    bool tracks_whole_units = false;
};
std::span<const RuntimeInfo* const> runtimes();
/// Throws Error(input) at --runtime with the nearest names.
const RuntimeInfo& runtime(std::string_view name);

/// The arguments for wrap() that a job implies.
WrapOptions wrap_options(const TrainingJob& job);

/// Throws Error(input) for what no such job can be: a strategy that its runtime does not know, a mesh that
/// does not have `gpus` ranks, sizes below one.
void check(const TrainingJob& job, std::int64_t gpus);

/// What PyTorch refuses about a job with these units, beyond `plan.diagnostics`: in the order in which it
/// raises, nothing after the first error of construction.
std::vector<Diagnostic> refusals(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job);

}  // namespace fsdplan
