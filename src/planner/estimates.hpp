#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdplan/cost.hpp"
#include "fsdplan/planner.hpp"
#include "planner/layers.hpp"

// First estimates, each behind one function and each with its interval. The operator graph replaces those of
// activations.
namespace fsdplan {

/// What one question's plans have in common.
struct ModelFacts {
    ModelShape shape;
    std::int64_t buffer_bytes = 0;
    std::int64_t experts_per_token = 1;
    bool experts_per_token_known = true;
};
ModelFacts facts_of(const ModelGraph& model, const ModuleTree& tree);

/// Bytes per row of the tree, as running sums.
class RowBytes {
public:
    explicit RowBytes(std::size_t rows) : before_(rows + 1) {}
    void add(std::int32_t row, const Estimate& bytes) {
        Estimate& at_row = before_[static_cast<std::size_t>(row) + 1];
        at_row = at_row + bytes;
    }
    void sum_up();
    /// Of all rows in front of `row`.
    const Estimate& before(std::int32_t row) const { return before_[static_cast<std::size_t>(row)]; }
    const Estimate& all() const { return before_.back(); }
    Estimate between(std::int32_t begin, std::int32_t end) const;

private:
    std::vector<Estimate> before_;
};

struct Activations {
    RowBytes saved;  ///< by each row's own forward, checkpointed or not
    RowBytes kept;   ///< from forward to the backward of a row
    /// Regions that are recomputed: what exists beyond `kept` while a region's backward runs.
    struct Region {
        std::int32_t begin = 0;
        std::int32_t end = 0;
        Estimate bytes;
        Estimate kept;  ///< of its inputs, from forward to its backward
    };
    std::vector<Region> recomputed;
    std::string note;
};
/// Tensors that autograd saves between forward and backward, from the leaf layers' classes and shapes.
Activations estimate_activations(const ModuleTree& tree, const ModelFacts& facts, const TrainingJob& job);

struct LossBytes {
    std::int64_t logits_numel = 0;
    Estimate logits;  ///< in the compute dtype; exact unless head and loss are fused
    Estimate loss;    ///< what the loss adds at its worst
    std::string note;
};
LossBytes estimate_loss(const ModelFacts& facts, const TrainingJob& job);

struct ProcessEstimate {
    Estimate context;
    Estimate nccl;
    std::string nccl_note;
};
ProcessEstimate estimate_process(const Cluster& cluster, const TrainingJob& job);

/// What the caching allocator reserves beyond what is allocated at the peak. `constant_bytes` of the
/// allocated never move. `run_ahead_bytes`: blocks that FSDP1 cannot reuse yet.
Estimate estimate_slack(const Estimate& allocated, std::int64_t constant_bytes, std::int64_t run_ahead_bytes);

}  // namespace fsdplan
