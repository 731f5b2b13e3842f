#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"

// What one training step does with a plan's units: what every rank stores, gathers, reduces and sends.
namespace fsdplan {

/// torch.distributed.fsdp.ShardingStrategy. FSDP2 says the same with a mesh and reshard_after_forward.
enum class Strategy : std::uint8_t { full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 };
/// "FULL_SHARD", …, "_HYBRID_SHARD_ZERO2"
std::string_view name(Strategy strategy);
/// Any letter case, `-` for `_`; throws Error(input) at --strategy.
Strategy parse_strategy(std::string_view text);
/// Sharded in groups, replicated across them.
bool is_hybrid(Strategy strategy);
/// Parameters go back to shards after forward and are gathered again in backward.
bool frees_after_forward(Strategy strategy);

struct Mesh {
    std::int64_t replicate = 1;  ///< ranks that hold a copy of each shard
    std::int64_t shard = 1;      ///< ranks that a parameter is split over

    std::int64_t ranks() const { return replicate * shard; }
    friend bool operator==(const Mesh&, const Mesh&) = default;
};
/// "2x8": replicate 2, shard 8; throws Error(input) at --mesh.
Mesh parse_mesh(std::string_view text);

enum class BackwardPrefetch : std::uint8_t { pre, post, none };
std::string_view name(BackwardPrefetch prefetch);
/// "BACKWARD_PRE", "BACKWARD_POST" or "none"; throws Error(input) at --backward-prefetch.
BackwardPrefetch parse_backward_prefetch(std::string_view text);

struct Optimizer {
    enum class Kind : std::uint8_t { adamw, adam8bit, sgd };
    enum class Implementation : std::uint8_t { foreach, fused, for_loop };
    Kind kind = Kind::adamw;
    Implementation implementation = Implementation::foreach;

    friend bool operator==(const Optimizer&, const Optimizer&) = default;
};
/// "adamw", "adamw:fused", …
std::string name(const Optimizer& optimizer);
/// Throws Error(input) at --optimizer.
Optimizer parse_optimizer(std::string_view text);

struct ActivationCheckpointing {
    enum class Mode : std::uint8_t {
        none,
        blocks,     ///< every repeated block
        every,      ///< every n-th repeated block
        selective,  ///< keeps every other matrix product and attention's output, recomputes the rest
    };
    Mode mode = Mode::none;
    int every = 1;  ///< of Mode::every

    friend bool operator==(const ActivationCheckpointing&, const ActivationCheckpointing&) = default;
};
/// "none", "blocks", "every:2", "selective"
std::string name(const ActivationCheckpointing& checkpointing);
/// Throws Error(input) at --activation-checkpointing.
ActivationCheckpointing parse_activation_checkpointing(std::string_view text);

struct Loss {
    enum class Kind : std::uint8_t {
        cross_entropy,  ///< logits raised to float32, then torch's cross_entropy
        chunked,        ///< the same in pieces along the tokens
        low_precision,  ///< cross_entropy on logits in the compute dtype
        fused,          ///< head and loss in one kernel: logits never exist as a whole
        none,           ///< no loss over a vocabulary
    };
    Kind kind = Kind::cross_entropy;
    int chunks = 8;  ///< of Kind::chunked and Kind::fused

    friend bool operator==(const Loss&, const Loss&) = default;
};
/// "cross-entropy", "chunked:8", …
std::string name(const Loss& loss);
/// Throws Error(input) at --loss.
Loss parse_loss(std::string_view text);

/// Everything the user decides that is neither the model nor the wrap boundaries.
struct TrainingJob {
    std::string runtime = "fsdp2";  ///< a name of runtimes()
    Strategy strategy = Strategy::full_shard;
    /// FSDP2's reshard_after_forward where it was given: 0 false, 1 true (the root too), k > 1 groups of k.
    std::optional<std::int64_t> reshard_after_forward;
    Mesh mesh;

    std::int64_t batch = 1;        ///< sequences per GPU and micro-batch
    std::int64_t sequence = 2048;  ///< tokens of each
    std::int64_t accumulate = 1;   ///< micro-batches a step
    bool no_sync = false;          ///< gradients are reduced in the last micro-batch only

    std::optional<DType> param_dtype = DType::bfloat16;  ///< compute; absent: as stored
    std::optional<DType> reduce_dtype;                   ///< absent: what the runtime infers
    std::optional<DType> buffer_dtype;

    Optimizer optimizer;
    ActivationCheckpointing activation_checkpointing;
    Loss loss;

    bool use_orig_params = false;
    BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
    bool forward_prefetch = false;
    bool limit_all_gathers = true;
    bool offload = false;  ///< shards, their gradients and the optimizer live in host memory

    std::int64_t tokens() const { return batch * sequence; }  ///< of one rank and micro-batch
};

enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce };
/// "all_gather", …
std::string_view name(CollectiveKind kind);

/// Which ranks take part.
enum class RankGroup : std::uint8_t {
    shard,
    replicate,
    post_forward,  ///< FSDP2 with an integer reshard_after_forward
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

/// How FSDP2 splits one parameter by rows.
struct RowShard {
    std::int64_t padded_rows = 0;  ///< stored on every rank
    std::int64_t owned_rows = 0;   ///< of this rank, possibly none
    std::int64_t row_numel = 1;    ///< elements of one row

    std::int64_t padded_numel() const { return padded_rows * row_numel; }
    std::int64_t owned_numel() const { return owned_rows * row_numel; }
};
RowShard row_shard(std::span<const std::int64_t> shape, std::int64_t ranks, std::int64_t rank);

/// One unit on one rank. All bytes are exact.
struct UnitLayout {
    std::int32_t unit = 0;        ///< index into WrapPlan::units
    std::int32_t enclosing = -1;  ///< row of the nearest unit around this one; -1: none
    std::int32_t begin = 0;  ///< its modules are the rows [begin, end) of the tree, less those of inner units
    std::int32_t end = 0;

    std::int64_t numel = 0;
    std::int64_t shard_bytes = 0;           ///< stored between steps, with padding
    std::int64_t unsharded_bytes = 0;       ///< gathered for computing
    std::int64_t gather_buffer_bytes = 0;   ///< beside them while a gather is under way (FSDP2)
    std::int64_t gradient_bytes = 0;        ///< as autograd leaves them
    std::int64_t reduce_buffer_bytes = 0;   ///< for the reduction, beside the gradients
    std::int64_t gradient_shard_bytes = 0;  ///< what the optimizer reads
    bool frees_after_forward = false;

    std::optional<Collective> gather{};      ///< `count`: per step, in forward
    std::optional<Collective> regather{};    ///< in backward
    std::optional<Collective> reduce{};      ///< reduce-scatter, or the all-reduce of unsharded gradients
    std::optional<Collective> all_reduce{};  ///< of the shard across replicas
};

/// A point of the step at which memory may peak.
enum class Phase : std::uint8_t {
    forward,   ///< a unit's forward runs
    loss,      ///< forward is over, the loss is computed
    backward,  ///< a unit's backward begins
    gradient,  ///< its gradients are complete
    reduce,    ///< they are being reduced
    step,      ///< the optimizer runs
};
std::string_view name(Phase phase);

/// What a runtime holds at such a point besides shards, states and activations.
struct Moment {
    Phase phase{};
    std::int32_t row = -1;  ///< of StepLayout::units; -1 at the loss and in the step
    std::int64_t unsharded_bytes = 0;
    std::int64_t gradient_bytes = 0;
    std::int64_t buffer_bytes = 0;  ///< of gathers and reductions
    std::int64_t gradient_shard_bytes = 0;
};

/// One training step under a plan, as far as sizes go.
struct StepLayout {
    std::vector<UnitLayout> units;  ///< in the order in which forward reaches them
    std::vector<Moment> moments;

    std::int64_t shard_bytes = 0;  ///< sums over the units
    std::int64_t gradient_shard_bytes = 0;
    std::int64_t reduce_bucket_bytes = 0;  ///< kept for reductions through all steps (DDP)
    /// Gathered parameters that are freed but cannot be handed out again until the device has caught up with
    /// the host, at most (FSDP1).
    std::int64_t run_ahead_bytes = 0;
    /// What the optimizer keeps states for, on the rank that owns most: elements, their bytes as stored, and
    /// the largest single parameter's bytes.
    std::int64_t owned_numel = 0;
    std::int64_t owned_bytes = 0;
    std::int64_t largest_owned_bytes = 0;

    std::vector<Collective> collectives;  ///< of one step, equal ones counted together
    std::int64_t sent_bytes = 0;          ///< by one rank in one step
};

/// A runtime: what it stores, gathers and reduces. An entry is one file in src/schedule/builtin.
struct RuntimeInfo {
    std::string_view name;
    std::string_view help;
    bool wraps_by_policy;                  ///< FSDP1's constructor: units come from an auto_wrap_policy
    bool has_units;                        ///< false: the model stays whole (DDP)
    std::span<const Strategy> strategies;  ///< the first is the default
    StepLayout (*layout)(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job);
};
std::span<const RuntimeInfo* const> runtimes();
/// Throws Error(input) at --runtime with the nearest names.
const RuntimeInfo& runtime(std::string_view name);

/// The arguments for wrap() that a job implies.
WrapOptions wrap_options(const TrainingJob& job);

/// Throws Error(input) for what no such job can be: a strategy that its runtime does not know, a mesh that
/// does not have `gpus` ranks, sizes below one.
void check(const TrainingJob& job, std::int64_t gpus);

/// The step of a plan on one rank, by the job's runtime. The plan may be one that PyTorch refuses; sizes then
/// are those it would have had.
StepLayout lay_out(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job);

}  // namespace fsdplan
