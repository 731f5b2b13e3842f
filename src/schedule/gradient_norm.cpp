#include "schedule/gradient_norm.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace fsdplan {
namespace {

constexpr std::int64_t chunk_numel = 65536;  // of a multi-tensor kernel
constexpr int stacked = 4;                   // the stack, its powers, their sum over the ranks and its root

class Norms {
public:
    explicit Norms(Emitter& emit) : emit_(emit) {}

    std::int32_t allocate(std::int64_t numel, DType dtype) {
        const std::int32_t buffer =
            emit_.buffer({.bytes = bytes_of(numel, dtype).count, .category = Category::temporary});
        emit_.allocate(buffer);
        held_.push_back(buffer);
        return buffer;
    }
    void release_all() {
        for (const std::int32_t buffer : held_) {
            emit_.release(buffer);
        }
        held_.clear();
    }

private:
    Emitter& emit_;
    std::vector<std::int32_t> held_;
};

}  // namespace

void norms_by_foreach(Emitter& emit, std::span<const LocalGradient> gradients, bool sharded) {
    std::map<DType, std::vector<std::int64_t>> by_dtype;
    for (const LocalGradient& gradient : gradients) {
        by_dtype[gradient.dtype].push_back(gradient.numel);
    }
    Norms norms(emit);
    for (const auto& [dtype, numels] : by_dtype) {
        const std::int64_t most_chunks = ceil_div(std::ranges::max(numels), chunk_numel);
        const DType sums = dtype == DType::float64 ? DType::float64 : DType::float32;
        const std::int32_t partial =
            norms.allocate(static_cast<std::int64_t>(numels.size()) * most_chunks, sums);
        for (std::size_t i = 0; i < numels.size(); ++i) {
            norms.allocate(1, dtype);
        }
        emit.release(partial);
    }
    if (sharded) {
        for (int i = 0; i < stacked; ++i) {
            norms.allocate(static_cast<std::int64_t>(gradients.size()), gradients.front().dtype);
        }
    }
    norms.release_all();
}

void norms_one_by_one(Emitter& emit, std::span<const LocalGradient> gradients) {
    Norms norms(emit);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        norms.allocate(1, DType::float32);
    }
    norms.allocate(static_cast<std::int64_t>(gradients.size()), DType::float32);
    norms.release_all();
}

}  // namespace fsdplan
