#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/published/predict.hpp"

// Finds the constants of a GPU from published step times.
namespace fsdplan {

/// A published run with the time of its step.
struct TimedRun {
    std::string id;
    PreparedRun run;
    double published_s = 0.0;
};

/// Runs of a file that fitted, were timed and are judged, on GPU `gpu` of the library, in the file's order.
std::vector<TimedRun> timed_runs(const std::string& path, std::string_view gpu);

/// What is known of the GPU's kind without any run: what a fit starts from, whatever was fitted before.
GpuConstants starting_constants(const Gpu& gpu);

/// Natural logarithm of predicted over published.
double error_of(const TimedRun& timed, const GpuConstants& constants);

/// The constants named that bring the errors of `runs` down, from `start` on; each is held towards its start
/// as firmly as its interval is narrow, so that runs which say nothing about one leave it where it is.
///
/// Gauss-Newton on the logarithms of constants and errors; an error beyond a tenth counts by its size, not by
/// its square, so that no single odd run decides.
GpuConstants fitted(std::span<const TimedRun* const> runs, const GpuConstants& start,
                    std::span<const std::string_view> names);

}  // namespace fsdplan
