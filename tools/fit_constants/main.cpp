#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

#include "cost/constants.hpp"
#include "verify/published/fit.hpp"

namespace fsdplan {
namespace {

/// Of predicted over published.
struct Score {
    double mean = 0.0;
    double nine_of_ten = 0.0;  ///< no error of nine in ten rows is larger
    double bias = 0.0;
};

Score score_of(std::span<const double> logarithms) {
    Score score;
    std::vector<double> sizes;
    for (const double logarithm : logarithms) {
        const double error = std::exp(logarithm) - 1.0;
        sizes.push_back(std::abs(error));
        score.mean += std::abs(error) / static_cast<double>(logarithms.size());
        score.bias += error / static_cast<double>(logarithms.size());
    }
    std::ranges::sort(sizes);
    score.nine_of_ten = sizes[sizes.size() * 9 / 10];
    return score;
}

std::vector<std::string_view> all_names() {
    std::vector<std::string_view> names;
    for (const ConstantInfo& info : gpu_constants()) {
        names.push_back(info.name);
    }
    return names;
}

/// Every second row from `first` on, or all.
std::vector<const TimedRun*> rows_of(std::span<const TimedRun> runs, std::size_t first, std::size_t every) {
    std::vector<const TimedRun*> rows;
    for (std::size_t i = first; i < runs.size(); i += every) {
        rows.push_back(&runs[i]);
    }
    return rows;
}

/// Fits on one half of the rows and says how far the others are off; returns their errors.
std::vector<double> cross(std::span<const TimedRun> runs, std::size_t fitted_half,
                          const GpuConstants& start) {
    const GpuConstants found = fitted(rows_of(runs, fitted_half, 2), start, all_names());
    std::vector<double> errors;
    for (const TimedRun* run : rows_of(runs, 1 - fitted_half, 2)) {
        errors.push_back(error_of(*run, found));
    }
    const Score score = score_of(errors);
    fmt::print(
        "fitted on the {} rows, scored on the others: mean {:.2f} %, nine of ten within {:.2f} %, bias "
        "{:+.2f} %\n",
        fitted_half == 0 ? "even" : "odd", 100 * score.mean, 100 * score.nine_of_ten, 100 * score.bias);
    return errors;
}

void run(const std::string& file, const std::string& gpu) {
    const std::vector<TimedRun> runs = timed_runs(file, gpu);
    if (runs.size() < 4) {
        throw Error(ErrorKind::input, file,
                    "expected four or more timed runs on " + gpu + ", found " + std::to_string(runs.size()));
    }
    const GpuConstants start = starting_constants(find_cluster({.gpu = gpu}).gpu);
    std::vector<double> errors = cross(runs, 0, start);
    const std::vector<double> others = cross(runs, 1, start);
    errors.insert(errors.end(), others.begin(), others.end());
    const Score score = score_of(errors);
    fmt::print("both ways, {} rows: mean {:.2f} %, nine of ten within {:.2f} %, bias {:+.2f} %\n",
               runs.size(), 100 * score.mean, 100 * score.nine_of_ten, 100 * score.bias);
    const GpuConstants found = fitted(rows_of(runs, 0, 1), start, all_names());
    for (const ConstantInfo& info : gpu_constants()) {
        fmt::print("  \"{}\": {:.3f}\n", info.name, (found.*info.member).value);
    }
}

}  // namespace
}  // namespace fsdplan

int main(int count, char** arguments) {
    if (count != 3) {
        fmt::print(stderr, "usage: fit_constants FILE GPU\n");
        return 2;
    }
    try {
        fsdplan::run(arguments[1], arguments[2]);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    }
    return 0;
}
