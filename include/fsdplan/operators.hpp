#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"

// What a model computes in one forward and backward, operator by operator, and what lives in memory
// meanwhile.
namespace fsdplan {

/// transformers' attn_implementation.
enum class AttentionImplementation : std::uint8_t {
    sdpa,
    flash_attention_2,  ///< the package flash-attn
    eager,
};

struct Loss {
    enum class Kind : std::uint8_t {
        cross_entropy,  ///< logits raised to float32, then torch's cross_entropy
        shifted,  ///< the model returns float32 logits and copies all but the last (transformers < 4.46)
        chunked,  ///< torchtune's CEWithChunkedOutputLoss: the same in pieces along the tokens
        low_precision,  ///< cross_entropy on logits in the compute dtype
        fused,          ///< liger_kernel's fused linear cross entropy: logits exist piece by piece
        cut,            ///< Apple's cut cross entropy: logits never exist
        none,           ///< no loss over a vocabulary
    };
    Kind kind = Kind::cross_entropy;
    int chunks = 8;  ///< of Kind::chunked; of Kind::fused, 0: as many as liger_kernel takes

    /// Logits never exist as a whole, or not as one tensor.
    bool in_pieces() const { return kind == Kind::chunked || kind == Kind::fused || kind == Kind::cut; }

    friend bool operator==(const Loss&, const Loss&) = default;
};

/// What the operators of a model depend on beside the model.
struct Workload {
    std::int64_t batch = 1;                       ///< sequences (or images) of one micro-batch
    std::int64_t sequence = 1;                    ///< tokens of each
    std::optional<std::int64_t> target_sequence;  ///< of an encoder-decoder's decoder; absent: as `sequence`
    std::optional<DType> compute;  ///< dtype that floating-point parameters compute in; absent: their own
    std::int64_t multiprocessors = 132;  ///< of the GPU: how kernels share out decides their scratch memory
    AttentionImplementation attention = AttentionImplementation::sdpa;
    Loss loss;  ///< of models with a head over a vocabulary
    /// What the input embedding gives takes gradients even where no parameter before it does.
    bool input_gradients = false;

    friend bool operator==(const Workload&, const Workload&) = default;
};

/// Memory that an operator allocates. Views share it; parameters and the model's inputs are none.
struct Storage {
    /// What it is for, to tell people.
    enum class Use : std::uint8_t { activation, logits, temporary };
    std::int64_t bytes = 0;
    Use use = Use::activation;
};

/// What decides how well a kernel fills a GPU: `batch` products of [m, k] times [k, n] in `dtype`.
///
/// Of attention: m queries and n keys of k numbers each, for `batch` sequences times heads.
struct KernelShape {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t batch = 1;
    DType dtype = DType::bfloat16;
    bool causal = false;  ///< attention: a query sees the keys up to its own alone

    friend auto operator<=>(const KernelShape&, const KernelShape&) = default;
};

/// One kernel, or several that nobody needs to tell apart.
struct Operator {
    enum class Kind : std::uint8_t {
        other,             ///< matrix products as far as there are FLOPs
        attention,         ///< fused
        causal_attention,  ///< the same; half of `flops` lies above the diagonal and is left out
    };
    Kind kind = Kind::other;
    std::int32_t name = 0;    ///< row of OperatorGraph::names
    std::int32_t call = -1;   ///< row of OperatorGraph::calls whose forward runs; -1: the loss
    std::int32_t shape = -1;  ///< row of OperatorGraph::shapes; -1: no product, or nobody knows
    std::int64_t flops = 0;   ///< as torch's counter has it
    std::int64_t bytes = 0;   ///< read and written
};

/// What happens to memory and on the device, in the order of the program.
struct MemoryEvent {
    enum class Kind : std::uint8_t {
        allocate,  ///< a storage
        run,       ///< an operator
        save,      ///< forward: autograd keeps a storage; each save is released once
        drop,      ///< a storage: the program holds it no longer (autograd may)
        unpack,    ///< backward: a saved storage has been read; comes before its release, where that is later
        release,   ///< backward: a saved storage
        gradient,  ///< backward: a gradient of parameter `tensor` is there; its memory is the runtime's
    };
    Kind kind{};
    std::int32_t index = 0;  ///< storage, row of `operators`, or TensorIndex

    friend bool operator==(const MemoryEvent&, const MemoryEvent&) = default;
};

/// One forward and backward. Forward events are cut into the parts of leaf calls: between two leaves what
/// happens belongs to the first as long as a module around both is running, then to the second. The last part
/// is the loss. Backward runs the same parts from the last to the first.
struct OperatorGraph {
    Workload workload;
    ForwardCalls calls;
    std::vector<std::string> names;
    std::vector<KernelShape> shapes;  ///< distinct ones
    std::vector<Storage> storages;
    std::vector<Operator> operators;

    std::vector<MemoryEvent> forward;
    std::vector<std::int32_t> forward_begin;  ///< calls + 2 entries; part c is [begin[c], begin[c + 1])
    std::vector<MemoryEvent> backward;
    std::vector<std::int32_t> backward_begin;  ///< calls + 1 entries, where part c begins …
    std::vector<std::int32_t> backward_end;    ///< … and where it ends

    std::vector<std::int32_t> input_begin;  ///< calls + 1 entries, as storages are passed to each call
    std::vector<std::int32_t> input;        ///< storages

    std::vector<std::int32_t> gradient_inputs;  ///< leaf calls whose result takes gradients of its own

    /// Whether the model's own forward works out the loss.
    bool loss_in_model = false;
    /// Whether the model returns its logits beside the loss.
    bool returns_logits = true;
    /// What could not be described exactly, one sentence each.
    std::vector<std::string> notes;

    std::size_t parts() const { return calls.size() + 1; }
    std::span<const MemoryEvent> forward_of(std::size_t part) const;
    std::span<const MemoryEvent> backward_of(std::size_t part) const;
    std::span<const std::int32_t> inputs_of(std::size_t call) const;
};

/// The first rule that a graph breaks, or "" (indices in range, allocated before use, saves released once).
std::string first_fault(const OperatorGraph& graph);

}  // namespace fsdplan
