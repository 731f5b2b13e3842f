#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "schedule/emitter.hpp"

namespace fsdplan {

/// A tensor that the optimizer keeps for a parameter.
struct StateBuffer {
    std::int64_t bytes = 0;
    bool on_host = false;
};
class StateBuffers {
public:
    StateBuffers() = default;
    template <typename... More>
    explicit StateBuffers(const StateBuffer& first, const More&... more)
        : states_{first, more...}, size_(1 + sizeof...(more)) {}

    const StateBuffer* begin() const { return states_.data(); }
    const StateBuffer* end() const { return states_.data() + size_; }

private:
    std::array<StateBuffer, 3> states_{};
    std::size_t size_ = 0;
};

/// States of one local parameter of `numel` elements.
///
/// AdamW: two moments in the parameter's dtype and a float32 count of steps, which lies in host memory unless
/// the implementation is fused. 8-bit Adam: a byte an element and moment, a float32 scale for 256 elements;
/// below 4,096 elements the moments stay in float32. SGD: nothing, or a momentum in the parameter's dtype.
StateBuffers optimizer_states(const TrainingJob& job, std::int64_t numel, DType dtype);

/// Allocates them on `unit`'s account; -1: on nobody's.
void create_states(Emitter& emit, const TrainingJob& job, std::int64_t numel, DType dtype,
                   std::int32_t unit = -1, Category category = Category::optimizer);

/// What one rank's parameters come to.
struct LocalParameters {
    std::int64_t numel = 0;
    std::int64_t bytes = 0;
    std::int64_t largest_bytes = 0;  ///< of one parameter
    std::vector<std::int64_t> each_bytes;

    void add(std::int64_t more_numel, DType dtype);
};

/// The step over them: its kernels and what it holds meanwhile. AdamW: foreach keeps the square roots of all
/// second moments, a tensor each; for-loop two temporaries of one parameter and still the last of the one
/// before; fused nothing.
void emit_optimizer(Emitter& emit, const TrainingJob& job, const LocalParameters& parameters);

/// What clip_grad_norm_ exchanges: `norms` partial norms, inside the shard group.
void exchange_norms(Emitter& emit, const TrainingJob& job, DType dtype, std::int64_t norms);

}  // namespace fsdplan
