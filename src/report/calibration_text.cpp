#include <fmt/core.h>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"

namespace fsdplan {
namespace {

std::string error_of(const CurveFit& fit) {
    return fit.residual ? fmt::format("{:.1f} %, at most {:.1f} %", 100.0 * fit.residual->mean,
                                      100.0 * fit.residual->worst)
                        : std::string("not known: fewer than four sizes");
}

std::string size_of(double bytes) {
    return show_bytes(static_cast<std::int64_t>(bytes));
}

}  // namespace

std::string text_report(const Calibration& calibration) {
    std::string out = fmt::format("measured by {}{}{}\n\n", calibration.backend,
                                  calibration.library.empty() ? "" : ", ", calibration.library);
    out += fmt::format("{:<22}{:>7}{:>22}{:>7}  {}\n", "curve", "sizes", "from … to", "lines",
                       "error at sizes left out of the fit");
    for (const CalibratedCurve& curve : calibration.curves) {
        const std::vector<CollectiveCurve::Point> points = median_points(curve.samples);
        const CurveFit fit = fit_curve(points);
        out += fmt::format("{:<22}{:>7}{:>22}{:>7}  {}\n", id_of(curve), points.size(),
                           size_of(points.front().bytes) + " … " + size_of(points.back().bytes),
                           fit.lines.size(), error_of(fit));
    }
    if (calibration.devices) {
        const Gpu& gpu = calibration.devices->gpu;
        out += fmt::format("\nproducts {:.1f} GFLOP/s, memory {:.1f} GB/s\n", gpu.flops_single / 1e9,
                           gpu.memory_bytes_per_s / 1e9);
    }
    return out;
}

}  // namespace fsdplan
