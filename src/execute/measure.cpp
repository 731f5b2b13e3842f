
#include "fsdplan/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/median.hpp"

namespace fsdplan {
namespace {

constexpr int calls_a_round = 5;
constexpr std::size_t least_rounds = 3;
constexpr std::size_t most_rounds = 50;
constexpr std::int64_t product_flops = 100'000'000;
constexpr std::int64_t copied_bytes = 32 << 20U;
constexpr std::int64_t element_bytes = 4;

Schedule empty_schedule() {
    Schedule schedule;
    schedule.runtime = "calibration";
    return schedule;
}

void add_collectives(Schedule& schedule, CollectiveKind kind, std::int64_t numel, std::int64_t ranks) {
    const bool gathers = kind == CollectiveKind::all_gather;
    const bool reduces_all = kind == CollectiveKind::all_reduce;
    schedule.collectives.push_back({.kind = kind,
                                    .group = RankGroup::world,
                                    .dtype = DType::float32,
                                    .reduction = gathers ? Reduction::none : Reduction::sum,
                                    .ranks = ranks,
                                    .input_numel = gathers ? numel / ranks : numel,
                                    .output_numel = gathers || reduces_all ? numel : numel / ranks});
    for (int i = 0; i < calls_a_round; ++i) {
        schedule.ops.push_back({.kind = OpKind::collective, .stream = Stream::gather, .target = 0});
    }
}

void add_products(Schedule& schedule) {
    for (int i = 0; i < calls_a_round; ++i) {
        schedule.ops.push_back({.kind = OpKind::compute, .stream = Stream::compute, .flops = product_flops});
    }
}

double mean_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double relative_standard_error(const std::vector<double>& values) {
    const double mean = mean_of(values);
    double squares = 0.0;
    for (const double value : values) {
        squares += (value - mean) * (value - mean);
    }
    const auto n = static_cast<double>(values.size());
    return std::sqrt(squares / (n - 1.0) / n) / mean;
}

class Measurer {
public:
    Measurer(Backend& backend, const MeasuringOptions& options) : backend_(backend), options_(options) {}

    Calibration run() {
        const std::int64_t ranks = backend_.ranks();
        std::vector<std::int64_t> numels;
        for (std::int64_t bytes = options_.least.count; bytes <= options_.most.count; bytes *= 2) {
            const std::int64_t numel = round_up(ceil_div(bytes, element_bytes), ranks);
            if (numels.empty() || numel > numels.back()) {
                numels.push_back(numel);
            }
        }
        left_ = 3 + (ranks > 1 ? std::ssize(curve_kinds) * std::ssize(numels) : 0);
        Calibration out;
        out.backend = backend_.name();
        out.library = backend_.library();
        out.devices = measured_devices(numels.back());
        for (const CollectiveKind kind : curve_kinds) {
            if (ranks > 1) {
                out.curves.push_back(measured_curve(kind, numels));
            }
        }
        return out;
    }

private:
    using Clock = std::chrono::steady_clock;

    CalibratedCurve measured_curve(CollectiveKind kind, const std::vector<std::int64_t>& numels) {
        CalibratedCurve curve{
            .kind = kind, .ranks = backend_.ranks(), .nodes = backend_.nodes(), .source = "measured"};
        for (const std::int64_t numel : numels) {
            Schedule schedule = empty_schedule();
            add_collectives(schedule, kind, numel, backend_.ranks());
            curve.samples.push_back({.bytes = static_cast<double>(numel * element_bytes),
                                     .us = times_of(schedule, OpKind::collective)});
        }
        return curve;
    }

    Cluster measured_devices(std::int64_t largest_numel) {
        Schedule products = empty_schedule();
        add_products(products);
        const double product_us = median_of(times_of(products, OpKind::compute));
        Schedule copies = empty_schedule();
        copies.ops.assign(calls_a_round,
                          {.kind = OpKind::copy, .stream = Stream::compute, .bytes = copied_bytes});
        const double copy_us = median_of(times_of(copies, OpKind::copy));
        if (backend_.ranks() > 1) {
            add_collectives(products, CollectiveKind::all_gather, largest_numel, backend_.ranks());
        }
        const double overlapped_us = median_of(times_of(products, OpKind::compute));
        return described(static_cast<double>(product_flops) / product_us * 1e6,
                         2.0 * static_cast<double>(copied_bytes) / copy_us * 1e6,
                         std::clamp(product_us / overlapped_us, 0.01, 1.0));
    }

    Cluster described(double flops, double memory_rate, double overlap) const {
        const std::string source = "measured by fsdplan";
        const auto known = [&source](double value, double low) {
            Constant constant{.value = value, .low = low, .high = 1.0};
            constant.source = source;
            return constant;
        };
        Cluster out;
        out.name = "measured";
        out.title = "measured devices";
        out.gpus = backend_.ranks();
        out.gpus_per_node = std::max<std::int64_t>(1, backend_.ranks() / backend_.nodes());
        out.network_bytes_per_s = memory_rate;  // says nothing where collectives are measured
        out.source = source;
        Gpu& gpu = out.gpu;
        gpu.name = std::string(backend_.name()) + "-rank";
        gpu.title = "rank of " + backend_.library();
        gpu.memory = backend_.memory();
        gpu.memory_reports = {static_cast<double>(gpu.memory.count) / 0x1p30};
        gpu.sm_count = 1;
        gpu.memory_bytes_per_s = memory_rate;
        gpu.kernel_start_bytes = 0.0;
        gpu.flops_half = flops;
        gpu.flops_single = flops;
        gpu.pcie_bytes_per_s = memory_rate;
        gpu.source = source;
        gpu.constants.products = known(1.0, 0.8);
        gpu.constants.product_start = known(0.0, 0.0);
        gpu.constants.attention_forward = known(1.0, 0.8);
        gpu.constants.attention_backward = known(1.0, 0.8);
        gpu.constants.memory = known(1.0, 0.8);
        gpu.constants.overlap = known(overlap, 0.8 * overlap);
        return out;
    }

    /// Microseconds of the operations of one kind: of each round the median, on the slowest rank.
    std::vector<double> times_of(const Schedule& schedule, OpKind kind) {
        const Clock::time_point until = Clock::now() + share_of_budget();
        backend_.prepare(schedule, {.replicate = 1, .shard = backend_.ranks()});
        std::vector<double> us;
        bool enough = false;
        while (!enough) {
            us.push_back(round(schedule, kind));
            const bool precise =
                us.size() >= least_rounds && relative_standard_error(us) <= options_.precision;
            // The clocks of ranks differ; the first one decides.
            const bool stop = precise || us.size() == most_rounds || Clock::now() >= until;
            enough = backend_.of_all_ranks(stop ? 1 : 0).front() == 1;
        }
        return us;
    }

    /// What is left of the budget, shared evenly by all measurements that are still to come.
    Clock::duration share_of_budget() {
        const Clock::duration left = begin_ + std::chrono::seconds(options_.budget_s) - Clock::now();
        return std::max(left, Clock::duration::zero()) / std::max<std::int64_t>(1, left_--);
    }

    double round(const Schedule& schedule, OpKind kind) {
        backend_.start();
        for (std::size_t op = 0; op < schedule.ops.size(); ++op) {
            backend_.issue(op);
        }
        backend_.finish();
        std::vector<double> ns;
        for (std::size_t op = 0; op < schedule.ops.size(); ++op) {
            if (schedule.ops[op].kind == kind) {
                const OpSpan span = backend_.span(op);
                ns.push_back(static_cast<double>(span.end_ns - span.start_ns));
            }
        }
        const std::vector<std::int64_t> all = backend_.of_all_ranks(std::llround(median_of(ns)));
        return std::max(1e-3, static_cast<double>(std::ranges::max(all)) / 1e3);
    }

    Backend& backend_;
    const MeasuringOptions& options_;
    Clock::time_point begin_ = Clock::now();
    std::int64_t left_ = 1;  // measurements
};

}  // namespace

Calibration measure_devices(Backend& backend, const MeasuringOptions& options) {
    return Measurer(backend, options).run();
}

}  // namespace fsdplan
