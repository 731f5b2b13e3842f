#include "execute/mpi/kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace fsdplan::mpi {
namespace {

constexpr std::size_t block = 64;
constexpr std::int64_t flops_a_block = std::int64_t{2} * block * block * block;
constexpr std::size_t half_bytes = std::size_t{32} << 20U;

/// c += a b for square blocks; the inner loop runs along rows, which compilers make vectors of.
void multiply_block(const float* a, const float* b, float* c) {
    for (std::size_t i = 0; i < block; ++i) {
        for (std::size_t k = 0; k < block; ++k) {
            const float factor = a[i * block + k];
            for (std::size_t j = 0; j < block; ++j) {
                c[i * block + j] += factor * b[k * block + j];
            }
        }
    }
}

}  // namespace

Kernels::Kernels() : a_(block * block, 1e-3F), b_(block * block, 1e-3F), c_(block * block, 0.0F) {}

void Kernels::multiply(std::int64_t flops) {
    const std::int64_t blocks = (flops + flops_a_block / 2) / flops_a_block;
    for (std::int64_t i = 0; i < blocks; ++i) {
        multiply_block(a_.data(), b_.data(), c_.data());
    }
}

void Kernels::stream(std::int64_t bytes) {
    if (from_.empty()) {
        from_.resize(half_bytes);
        to_.resize(half_bytes);
    }
    std::size_t left = static_cast<std::size_t>(bytes) / 2;
    while (left > 0) {
        const std::size_t now = std::min(left, half_bytes);
        std::memcpy(to_.data(), from_.data(), now);
        left -= now;
    }
}

}  // namespace fsdplan::mpi
