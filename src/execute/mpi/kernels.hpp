#pragma once

#include <cstdint>
#include <vector>

// Arithmetic of a host that stands for a device's.
namespace fsdplan::mpi {

/// One stream's operands. Products are done in blocks that fit a core's cache, so that their rate does not
/// hang on their shape; memory traffic goes through more memory than caches hold.
class Kernels {
public:
    Kernels();

    /// So many operations of matrix products in float32, to the nearest block.
    void multiply(std::int64_t flops);
    /// Reads one half of so many bytes and writes the other.
    void stream(std::int64_t bytes);

private:
    std::vector<float> a_;
    std::vector<float> b_;
    std::vector<float> c_;
    std::vector<std::byte> from_;
    std::vector<std::byte> to_;
};

}  // namespace fsdplan::mpi
