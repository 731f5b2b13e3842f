#include <algorithm>

#include "planner/estimates.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t block_of_8bit = 256;  // elements that share a float32 scale
constexpr std::int64_t scale_bytes = 4;

}  // namespace

OptimizerBytes estimate_optimizer(const StepLayout& layout, const TrainingJob& job,
                                  std::int64_t replicated_numel, std::int64_t replicated_bytes) {
    const std::int64_t numel = layout.owned_numel + replicated_numel;
    const std::int64_t bytes = layout.owned_bytes + replicated_bytes;
    const std::int64_t largest = std::max(layout.largest_owned_bytes, std::int64_t{0});
    OptimizerBytes out;
    switch (job.optimizer.kind) {
        case Optimizer::Kind::adamw:
            out.states = exactly(2 * bytes);
            out.states_note = "two moments in the stored dtype";
            break;
        case Optimizer::Kind::adam8bit: {
            const std::int64_t scales = 2 * scale_bytes * ceil_div(numel, block_of_8bit);
            // Tensors below 4,096 elements keep moments in float32.
            out.states = {2 * numel + scales, 2 * numel, 2 * numel + 2 * scales};
            out.states_note = "two moments of 8 bits with a scale for 256 elements";
            out.transients = {2 * largest, 0, 4 * largest};
            out.transients_note = "moments of one parameter in float32";
            return out;
        }
        case Optimizer::Kind::sgd:
            out.states_note = "SGD without momentum keeps nothing";
            out.transients_note = "in place";
            return out;
    }
    switch (job.optimizer.implementation) {
        case Optimizer::Implementation::foreach:
            out.transients = {bytes, bytes, bytes + bytes / 10};
            out.transients_note = "foreach: square roots of the second moments, all at once";
            break;
        case Optimizer::Implementation::fused:
            out.transients_note = "fused: in place";
            break;
        case Optimizer::Implementation::for_loop:
            out.transients = {2 * largest, largest, 3 * largest};
            out.transients_note = "for-loop: two temporaries of the largest parameter";
            break;
    }
    return out;
}

}  // namespace fsdplan
