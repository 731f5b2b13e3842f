#pragma once

#include <cstdint>

namespace fsdplan {

/// Scratch memory of a sum over the rows of [rows, columns], which blocks of one kernel share out: 0 when
/// each column is summed by one block.
/// Source: setReduceConfig and ReduceConfig::global_memory_size in aten/src/ATen/native/cuda/Reduce.cuh.
std::int64_t sum_scratch_bytes(std::int64_t rows, std::int64_t columns, std::int64_t multiprocessors);

}  // namespace fsdplan
