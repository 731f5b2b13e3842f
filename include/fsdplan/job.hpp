#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fsdplan/base.hpp"
#include "fsdplan/model.hpp"

// Everything the user decides that is neither the model nor the wrap boundaries.
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

}  // namespace fsdplan
