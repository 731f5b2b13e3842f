#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/training_loop.hpp"

// What lowerings share whose runtime hooks gradients of single parameters instead of units.
namespace fsdplan {

/// One unit: the model.
WrapPlan one_unit(const ModuleTree& tree);
/// Every module is a unit, those without parameters too, except what lies below one of `leaves` (rows).
WrapPlan every_module(const ModuleTree& tree, std::span<const ModuleIndex> leaves);

class WholeModel : public UnitRuntime {
public:
    WholeModel(const LoweringInput& input, WrapPlan plan, Schedule& out);

    void run() { loop.run(*this); }

    void begin() override;
    void begin_microbatch(bool last) override;
    void pre_forward(std::int32_t /*unit*/, std::int32_t /*call*/) override {}
    void post_forward(std::int32_t /*unit*/, std::int32_t /*call*/) override {}
    void hook(const Tape::Hook& /*hook*/) override {}
    void node(const Tape::Node& node) override;
    void clip() override;
    void zero_grad() override;
    bool tracks(TensorIndex t) const override { return loop.tree.tensors[at(t)].requires_grad; }
    std::int32_t gradient_node(TensorIndex t) override;
    void gradient_computed(TensorIndex t) override;

protected:
    /// A parameter, in the order of registration, each object once.
    struct Row {
        TensorIndex tensor{};
        std::int64_t numel = 0;
        DType dtype{};
        bool trainable = false;
        bool read = false;  ///< by any computation
        std::int32_t stored = -1;
        std::int32_t gradient = -1;
        std::int32_t incoming = -1;  // what arrives while there is a gradient
        bool has_gradient = false;
        std::int32_t accumulator = -1;  // node in this graph

        std::int64_t bytes() const { return bytes_of(numel, dtype).count; }
    };

    /// The gradient of `parameter_rows[row]` is complete.
    virtual void gradient_ready(std::int32_t row) = 0;

    Row& row(std::int32_t r) { return parameter_rows[static_cast<std::size_t>(r)]; }
    /// Rows that get a gradient in every backward.
    std::vector<std::int32_t> trained_rows() const;
    std::int32_t buffer(std::int64_t bytes, Category category, Stream stream = Stream::compute);
    void drop_gradient(Row& r);
    /// The optimizer over the trainable rows; creates their states the first time.
    void step_over_rows();
    /// A collective on the communication stream, behind all that has been computed.
    void send(const CollectiveCall& call, std::int32_t unit = -1, bool prefetched = false);
    /// Computation goes on when everything sent has arrived.
    void wait_for_sent() { emit.after(Stream::compute, Stream::all_reduce); }

    WrapPlan unit_plan;
    LoweringInput lowering;
    const TrainingJob& job;
    TrainingLoop loop;
    Emitter& emit;
    std::vector<Row> parameter_rows;
    std::vector<std::int32_t> row_of;  // by tensor
    bool last_microbatch = true;

private:
    bool has_states_ = false;
};

/// Streams of a runtime that talks over one communicator.
constexpr std::array<std::string_view, stream_count> one_communicator{"compute", "", "", "", "nccl", "copy"};

}  // namespace fsdplan
