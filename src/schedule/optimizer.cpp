#include "schedule/optimizer.hpp"

#include <numeric>

namespace fsdplan {

std::int64_t OptimizerStep::bytes() const {
    return std::accumulate(parameters_.begin(), parameters_.end(), std::int64_t{0},
                           [](std::int64_t sum, const LocalParameter& p) { return sum + p.bytes(); });
}

OptimizerStep::Temporary OptimizerStep::allocate(std::int64_t bytes) {
    const std::int32_t buffer = emit_.buffer({.bytes = bytes, .category = Category::optimizer_temporary});
    emit_.allocate(buffer);
    return {emit_, buffer};
}

void OptimizerStep::run(std::int64_t bytes, std::int32_t launches, std::int64_t flops) {
    emit_.add(
        {.kind = OpKind::compute, .pass = emit_.pass, .launches = launches, .bytes = bytes, .flops = flops});
}

void OptimizerStep::synchronise() {
    emit_.block(emit_.record(Stream::compute));
}

void OptimizerStep::exchange(CollectiveKind kind, DType dtype, std::int64_t ranks, std::int64_t input_numel,
                             std::int64_t output_numel) {
    emit_.issue(
        emit_.collective({.kind = kind,
                          .dtype = dtype,
                          .reduction = kind == CollectiveKind::all_reduce ? Reduction::sum : Reduction::none,
                          .ranks = ranks,
                          .input_numel = input_numel,
                          .output_numel = output_numel}),
        -1, Stream::compute);
}

}  // namespace fsdplan
