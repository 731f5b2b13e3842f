#pragma once

#include <cstdint>

#include "fsdplan/calibrate.hpp"
#include "fsdplan/execute.hpp"

// Calibrating the devices that are here.
namespace fsdplan {

struct MeasuringOptions {
    std::int64_t budget_s = 60;  ///< for all measurements; each curve's sizes share what is left evenly
    Bytes least{1 << 10U};       ///< full size of the smallest collective
    Bytes most{64 << 20U};       ///< … of the largest
    double precision = 0.02;     ///< relative standard error at which a time is good enough
};

/// Measures all-gather, reduce-scatter and all-reduce of all ranks over sizes that double, the rate of matrix
/// products and of memory, and what kernels keep of their speed while a collective runs. A time is the
/// slowest rank's; a measurement is repeated until it is precise enough or its share of the budget is spent.
///
/// Every rank calls it with the same options and gets the same. Throws Error(machine) when a backend fails.
Calibration measure_devices(Backend& backend, const MeasuringOptions& options);

}  // namespace fsdplan
