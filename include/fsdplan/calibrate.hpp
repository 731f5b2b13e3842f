#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/cost.hpp"

// Curves of one's own devices: from measured times to what the cost model reads.
namespace fsdplan {

/// Straight lines through measured times, the fastest of which counts, and what they are worth.
struct CurveFit {
    std::vector<CollectiveCurve::Line> lines;  ///< by rising latency
    /// Relative errors at points that a fit of all others had not seen; the first and the last point, which
    /// nothing surrounds, are left out of no fit. Absent with fewer than four points.
    struct Residual {
        double mean = 0.0;
        double worst = 0.0;
    };
    std::optional<Residual> residual;
};

/// Fits as many lines as the points allow, one for every three of them, by least squares of the logarithms of
/// times. Lines rise, so that the fit does.
///
/// `points`: at least two, with rising sizes and times above 0.
CurveFit fit_curve(std::span<const CollectiveCurve::Point> points);

/// All times of one collective at one size.
struct CalibrationSample {
    double bytes = 0.0;  ///< full size: nccl-tests' S
    std::vector<double> us;
};

struct CalibratedCurve {
    CollectiveKind kind{};
    std::int64_t ranks = 0;
    std::int64_t nodes = 0;
    std::vector<CalibrationSample> samples;  ///< rising sizes
    std::string source;
};

/// "all_gather-8x1": over 8 ranks on 1 node.
std::string id_of(const CalibratedCurve& curve);

/// The median of every sample.
std::vector<CollectiveCurve::Point> median_points(std::span<const CalibrationSample> samples);

/// What a calibration file says; `fsdplan.calibration` in docs/formats.md.
struct Calibration {
    std::string backend;             ///< "nccl-tests", "mpi"
    std::string library;             ///< name and version of what communicated; empty: not known
    std::optional<Cluster> devices;  ///< as far as they were measured
    std::vector<CalibratedCurve> curves;
};

/// What a log of nccl-tests may leave open.
struct LogOptions {
    std::optional<CollectiveKind> kind;
    std::optional<std::int64_t> ranks;
    std::optional<std::int64_t> nodes;
};

/// Reads the output of all_gather_perf, reduce_scatter_perf or all_reduce_perf: the times that are not in
/// place. One log may hold several runs; sizes that are measured again become samples of one point.
///
/// Lines that are neither rows of the table nor say who took part are passed over. Throws Error(input) with
/// one fault for each row that cannot be used, or when the collective or its ranks are not known.
std::vector<CalibratedCurve> read_nccl_tests(std::string_view log, std::string_view file,
                                             const LogOptions& options = {});

}  // namespace fsdplan
