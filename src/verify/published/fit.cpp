#include "verify/published/fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/file.hpp"
#include "cost/constants.hpp"
#include "verify/published/source.hpp"

namespace fsdplan {
namespace {

// What errors of single runs are expected to be, beside which the start's interval is weighed.
constexpr double usual_error = 0.04;
constexpr double large_error = 0.1;
// Of an interval that holds in nine of ten cases, in standard deviations.
constexpr double interval_width = 2 * 1.645;
constexpr double step = 0.02;
constexpr int rounds = 5;

std::vector<Constant GpuConstants::*> members(std::span<const std::string_view> names) {
    std::vector<Constant GpuConstants::*> out;
    for (const ConstantInfo& info : gpu_constants()) {
        if (std::ranges::find(names, info.name) != names.end()) {
            out.push_back(info.member);
        }
    }
    return out;
}

GpuConstants moved(GpuConstants constants, std::span<Constant GpuConstants::*const> members,
                   std::span<const double> logs) {
    for (std::size_t i = 0; i < members.size(); ++i) {
        (constants.*members[i]).value = std::exp(logs[i]);
    }
    return constants;
}

/// Solves a x = b by elimination; a is symmetric and positive.
std::vector<double> solved(std::vector<std::vector<double>> a, std::vector<double> b) {
    const std::size_t n = b.size();
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            const double part = a[j][i] / a[i][i];
            for (std::size_t k = i; k < n; ++k) {
                a[j][k] -= part * a[i][k];
            }
            b[j] -= part * b[i];
        }
    }
    for (std::size_t i = n; i-- > 0;) {
        for (std::size_t k = i + 1; k < n; ++k) {
            b[i] -= a[i][k] * b[k];
        }
        b[i] /= a[i][i];
    }
    return b;
}

struct Start {
    std::string_view name;
    double value;
    double low;
    double high;
};
// FlashAttention 2 as published for heads of 128 and long sequences (Dao, 2023); products between three
// quarters and all of the best one found over many shapes (stas00/ml-engineering, accelerator/README.md).
constexpr std::array<Start, 3> hopper{{{"products", 0.72, 0.60, 0.803},
                                       {"attention_forward", 0.375, 0.35, 0.40},
                                       {"attention_backward", 0.325, 0.30, 0.35}}};
constexpr std::array<Start, 3> ampere{{{"products", 0.78, 0.65, 0.869},
                                       {"attention_forward", 0.65, 0.60, 0.70},
                                       {"attention_backward", 0.585, 0.55, 0.62}}};
// Elementwise kernels above 32 MiB, A100 to B200.
constexpr Start memory{"memory", 0.85, 0.80, 0.92};

void set(GpuConstants& constants, const Start& start) {
    const auto info = std::ranges::find(gpu_constants(), start.name, &ConstantInfo::name);
    constants.*
        info->member = {.value = start.value, .low = start.low, .high = start.high, .source = "published"};
}

}  // namespace

GpuConstants starting_constants(const Gpu& gpu) {
    GpuConstants constants = read_constants(std::nullopt);
    set(constants, memory);
    if (gpu.architecture == "hopper" || gpu.architecture == "ampere") {
        for (const Start& start : gpu.architecture == "hopper" ? hopper : ampere) {
            set(constants, start);
        }
    }
    return constants;
}

std::vector<TimedRun> timed_runs(const std::string& path, std::string_view gpu) {
    std::vector<TimedRun> out;
    const json::Document document(read_text(path), path);
    const PublishedSource* source = published::source_of(document.root());
    for (const PublishedRow& row :
         source != nullptr ? source->read(document.root()) : std::vector<PublishedRow>{}) {
        if (!row.outside.empty() || !row.tokens_per_s || !row.is_judged || !row.fits.value_or(true)) {
            continue;
        }
        if (find_cluster(row.run.cluster).gpu.name != gpu) {
            continue;
        }
        TimedRun timed{.id = row.id, .run = prepare(row.run), .published_s = 0.0};
        if (timed.run.refused.empty()) {
            timed.published_s = static_cast<double>(timed.run.tokens) / *row.tokens_per_s;
            out.push_back(std::move(timed));
        }
    }
    return out;
}

double error_of(const TimedRun& timed, const GpuConstants& constants) {
    const Schedule& schedule = timed.run.schedule;
    const Pricing& pricing = timed.run.options.pricing;
    Cluster cluster = timed.run.cluster;
    cluster.gpu.constants = constants;
    OpTimes times;
    Timeline timeline;
    price(schedule, cluster, pricing, collective_times(schedule, cluster, pricing), Bound::value, times);
    play(schedule, times, constants.overlap.value, timeline);
    const std::int64_t step_ns = iteration_times(schedule, timeline, {}).back().ns();
    const auto ranks = pricing.mesh.ranks();
    const std::int64_t expected =
        ranks > 1 ? with_stragglers(step_ns, usual_straggler_sigma, ranks).expected_ns : step_ns;
    return std::log(static_cast<double>(expected) / 1e9 / timed.published_s);
}

GpuConstants fitted(std::span<const TimedRun* const> runs, const GpuConstants& start,
                    std::span<const std::string_view> names) {
    const std::vector<Constant GpuConstants::*> free = members(names);
    const std::size_t n = free.size();
    std::vector<double> at;
    std::vector<double> firmness;
    for (const auto member : free) {
        const Constant& constant = start.*member;
        at.push_back(std::log(constant.value));
        firmness.push_back(std::pow(std::log(constant.high / constant.low) / interval_width, -2));
    }
    const std::vector<double> origin = at;
    for (int round = 0; round < rounds; ++round) {
        std::vector<std::vector<double>> a(n, std::vector<double>(n, 0.0));
        std::vector<double> b(n, 0.0);
        for (std::size_t i = 0; i < n; ++i) {
            a[i][i] = firmness[i];
            b[i] = firmness[i] * (origin[i] - at[i]);
        }
        for (const TimedRun* run : runs) {
            const double error = error_of(*run, moved(start, free, at));
            std::vector<double> slope;
            for (std::size_t i = 0; i < n; ++i) {
                std::vector<double> beside = at;
                beside[i] += step;
                slope.push_back((error_of(*run, moved(start, free, beside)) - error) / step);
            }
            const double weight =
                std::min(1.0, large_error / std::max(1e-9, std::abs(error))) / (usual_error * usual_error);
            for (std::size_t i = 0; i < n; ++i) {
                b[i] -= weight * slope[i] * error;
                for (std::size_t j = 0; j < n; ++j) {
                    a[i][j] += weight * slope[i] * slope[j];
                }
            }
        }
        const std::vector<double> by = solved(std::move(a), std::move(b));
        for (std::size_t i = 0; i < n; ++i) {
            at[i] += std::clamp(by[i], -0.5, 0.5);
        }
    }
    return moved(start, free, at);
}

}  // namespace fsdplan
