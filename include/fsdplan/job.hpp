#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdplan/base.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/operators.hpp"

// Everything the user decides that is neither the model nor the wrap boundaries.
namespace fsdplan {

/// torch.distributed.fsdp.ShardingStrategy. FSDP2 says the same with a mesh and reshard_after_forward.
enum class Strategy : std::uint8_t { full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 };
/// "FULL_SHARD", …, "_HYBRID_SHARD_ZERO2"
std::string_view name(Strategy strategy);
/// Any letter case, `-` for `_`; throws Error(input) at `option`.
Strategy parse_strategy(std::string_view text, std::string_view option = "--strategy");
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
    enum class Implementation : std::uint8_t { foreach, fused, for_loop };
    std::string kind = "adamw";                               ///< `fsdplan list optimizers`
    Implementation implementation = Implementation::foreach;  ///< where the optimizer has several

    friend bool operator==(const Optimizer&, const Optimizer&) = default;
};
/// "foreach", …
std::string_view name(Optimizer::Implementation implementation);
/// "adamw:fused", "muon", …
std::string name(const Optimizer& optimizer);
/// Throws Error(input) at --optimizer.
Optimizer parse_optimizer(std::string_view text);

struct ActivationCheckpointing {
    enum class Mode : std::uint8_t {
        none,
        blocks,     ///< every repeated block
        every,      ///< the first repeated block and every n-th after it; with a wrapper the n-th, 2n-th …
        selective,  ///< keeps every other matrix product and attention's output, recomputes the rest
    };
    /// Where the checkpoint stands to the unit around the same module.
    enum class Placement : std::uint8_t {
        inside,   ///< unit(checkpoint(module))
        outside,  ///< checkpoint(unit(module))
        forward,  ///< the module's forward alone, below its hooks (transformers)
    };
    Mode mode = Mode::none;
    int every = 1;  ///< of Mode::every
    Placement placement = Placement::inside;
    bool reentrant = false;
    bool wrapped = false;                ///< checkpoint_wrapper, though the model could do it itself
    std::vector<std::string> modules{};  ///< paths; instead of a mode

    /// Whether the model's own layers do it, as transformers' can, and no wrapper around them. Then the input
    /// embedding's output takes gradients (enable_input_require_grads) and blocks count from 0
    /// (every_n_layers); wrappers count from 1, as torchtitan's ac_freq does.
    bool by_model(const ModuleTree& tree) const;
    /// The modules that are checkpointed.
    std::vector<ModuleIndex> regions(const ModuleTree& tree) const;

    friend bool operator==(const ActivationCheckpointing&, const ActivationCheckpointing&) = default;
};
/// "none", "blocks", "every:2", "selective"; "32 modules" where they are listed
std::string name(const ActivationCheckpointing& checkpointing);
/// Throws Error(input) at --activation-checkpointing.
ActivationCheckpointing parse_activation_checkpointing(std::string_view text);

/// "cross-entropy", "chunked:8", …
std::string name(const Loss& loss);
/// Throws Error(input) at --loss.
Loss parse_loss(std::string_view text);

/// transformers' words: "sdpa", "flash_attention_2", "eager"
std::string_view name(AttentionImplementation attention);
/// Throws Error(input) at --attention.
AttentionImplementation parse_attention(std::string_view text);

/// How long the training loop holds what the model returned, and the logits with it.
enum class OutputLife : std::uint8_t {
    loss,          ///< backward begins without it
    backward,      ///< until backward is done
    next_forward,  ///< until the next forward has returned its own
};

/// What only FullyShardedDataParallel knows.
struct Fsdp1Options {
    bool keep_low_precision_gradients = false;
    /// The constructor has each unit whole on the device, from a model on the meta device or moved there by
    /// device_id; otherwise the units are flattened elsewhere.
    bool built_on_device = false;
    bool process_groups = true;  ///< a hybrid strategy is given its process groups or a mesh
    bool debug_detail =
        false;  ///< TORCH_DISTRIBUTED_DEBUG=DETAIL: the order of units is checked across ranks
};

/// What only fully_shard knows.
struct Fsdp2Options {
    /// set_modules_to_forward_prefetch and …_backward_prefetch: unit and targets by module path.
    using PrefetchLists = std::vector<std::pair<std::string, std::vector<std::string>>>;
    PrefetchLists forward_prefetch;
    PrefetchLists backward_prefetch;
    bool unshard_async_op = false;
    std::optional<double> gradient_divide_factor;  ///< of the root unit
    bool force_sum_reduction = false;              ///< of the root unit
    std::vector<std::string> no_unshard_in_backward;
    bool reduce_scatter_unused_params = false;
    std::int64_t reduce_scatter_max_input_buffers = 1;
    std::int64_t shard_dim = 0;  ///< parameters with more dimensions are sharded along this one
    // In micro-batches before the last:
    bool keep_unsharded = false;     ///< set_reshard_after_backward(False), with no_sync
    bool not_last_backward = false;  ///< set_is_last_backward(False), with no_sync
    bool no_all_reduce = false;      ///< set_requires_all_reduce(False)
};

/// What only DeepSpeed's ZeRO knows, with DeepSpeed's defaults and without its prefix "stage3_". Sizes are
/// numbers of elements.
struct ZeroOptions {
    bool float32_accumulation = false;  ///< data_types.grad_accum_dtype is wider than the parameters
    std::int64_t reduce_bucket_size = 500'000'000;
    bool overlap_comm = false;  ///< stages 1 and 2; in stage 3 it changes nothing here
    bool contiguous_gradients = true;
    bool reduce_scatter = true;
    bool use_multi_rank_bucket_allreduce = true;
    bool round_robin_gradients = false;
    bool parameter_alignment = false;
    std::int64_t prefetch_bucket_size = 50'000'000;
    std::int64_t max_live_parameters = 1'000'000'000;
    std::int64_t max_reuse_distance = 1'000'000'000;
    std::int64_t param_persistence_threshold = 100'000;
    std::int64_t model_persistence_threshold = INT64_MAX;
    std::int64_t sub_group_size = 1'000'000'000;
    bool allgather_sequential = false;
    bool use_all_reduce_for_fetch_params = false;

    friend bool operator==(const ZeroOptions&, const ZeroOptions&) = default;
};

/// Versions of PyTorch that are known, and where they differ.
struct TorchBehaviour {
    std::string_view version;
    /// fully_shard with only param_dtype given reduces in the original dtype instead of param_dtype.
    bool reduces_in_original_dtype;
    /// Gradients are cast to a wider reduce dtype as they arrive, not all at once in post-backward.
    bool widens_gradients_early;
    /// The gather buffer of the unit before is given back before a unit copies out, not after.
    bool releases_gather_before_copy_out;
    /// A gather that no backward used is given back at the very end of backward, not in its unit's turn.
    bool keeps_stray_gathers;
    std::string_view summary;
};
constexpr std::string_view newest_torch = "2.15";
std::span<const TorchBehaviour> torch_versions();
/// Of "2.13", "2.13.0", …; throws Error(input) at --torch for one that is not known.
const TorchBehaviour& torch_behaviour(std::string_view version);

/// Everything the user decides that is neither the model nor the wrap boundaries.
struct TrainingJob {
    std::string runtime = "fsdp2";  ///< a name of runtimes()
    Strategy strategy = Strategy::full_shard;
    /// FSDP2's reshard_after_forward where it was given: 0 false, 1 true (the root too), k > 1 groups of k.
    std::optional<std::int64_t> reshard_after_forward;
    Mesh mesh;

    std::int64_t batch = 1;                       ///< sequences per GPU and micro-batch
    std::int64_t sequence = 2048;                 ///< tokens of each
    std::optional<std::int64_t> target_sequence;  ///< of an encoder-decoder's decoder; absent: as `sequence`
    std::int64_t accumulate = 1;                  ///< micro-batches a step
    bool no_sync = false;                         ///< gradients are reduced in the last micro-batch only

    std::optional<DType> param_dtype = DType::bfloat16;  ///< compute; absent: as stored
    std::optional<DType> reduce_dtype;                   ///< absent: what the runtime infers
    std::optional<DType> buffer_dtype;

    Optimizer optimizer;
    ActivationCheckpointing activation_checkpointing;
    Loss loss;
    AttentionImplementation attention = AttentionImplementation::sdpa;

    /// Version of PyTorch whose behaviour counts; see torch_behaviour().
    std::string torch = std::string(newest_torch);

    OutputLife output = OutputLife::loss;
    /// The model computes the loss (transformers with labels): its root unit then ends behind the loss, and
    /// its backward begins in front of it.
    bool loss_in_model = false;
    bool reads_loss = false;       ///< a step ends with loss.item(): the host waits for the computations
    bool zero_grad_first = false;  ///< gradients go when the next step begins, not after the optimizer's
    bool gradient_as_bucket_view = false;  ///< DDP: gradients lie in the buckets

    /// Gradients are clipped to a norm of this order; absent: not at all.
    std::optional<double> clip_norm;

    Fsdp1Options fsdp1;
    Fsdp2Options fsdp2;
    ZeroOptions zero;

    bool use_orig_params = false;
    BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
    bool forward_prefetch = false;
    bool limit_all_gathers = true;
    bool offload = false;  ///< shards, their gradients and the optimizer live in host memory

    std::int64_t tokens() const { return batch * sequence; }  ///< of one rank and micro-batch
};

}  // namespace fsdplan
