#include <algorithm>
#include <cmath>

#include "base/median.hpp"
#include "fsdplan/calibrate.hpp"

namespace fsdplan {
namespace {

using Point = CollectiveCurve::Point;
using Line = CollectiveCurve::Line;
using Choice = std::vector<std::size_t>;  // rows of the candidates

constexpr std::size_t points_a_line = 3;
constexpr double no_progress = 1e-12;

/// The line with the least squares of relative errors; through the origin where the best one would not rise
/// or would begin below zero.
Line line_through(std::span<const Point> points) {
    double weight = 0.0;
    double x = 0.0;
    double y = 0.0;
    double xx = 0.0;
    double xy = 0.0;
    for (const Point& point : points) {
        const double w = 1.0 / (point.us * point.us);
        weight += w;
        x += w * point.bytes;
        y += w * point.us;
        xx += w * point.bytes * point.bytes;
        xy += w * point.bytes * point.us;
    }
    const double slope = (weight * xy - x * y) / (weight * xx - x * x);
    const double start = (y - slope * x) / weight;
    return slope > 0.0 && start >= 0.0 ? Line{.us = start, .bytes_per_us = 1.0 / slope}
                                       : Line{.us = 0.0, .bytes_per_us = xx / xy};
}

/// Chooses among the lines through all runs of neighbouring points those whose minimum is nearest to the
/// points: one after the other, then each again as long as another one is better.
class Chooser {
public:
    explicit Chooser(std::span<const Point> points) : points_(points) {
        for (std::size_t first = 0; first < points.size(); ++first) {
            for (std::size_t end = first + 2; end <= points.size(); ++end) {
                add_candidate(line_through(points.subspan(first, end - first)));
            }
        }
    }

    std::vector<Line> choose(std::size_t most) {
        Choice chosen;
        double error = std::numeric_limits<double>::infinity();
        while (chosen.size() < most) {
            chosen.push_back(0);
            if (!improve(chosen, chosen.size() - 1, error)) {
                chosen.pop_back();
                break;
            }
        }
        bool better = true;
        while (better) {
            better = false;
            for (std::size_t place = 0; place < chosen.size(); ++place) {
                better = improve(chosen, place, error) || better;
            }
        }
        std::vector<Line> out;
        for (const std::size_t row : chosen) {
            out.push_back(lines_[row]);
        }
        std::ranges::sort(out, {}, &Line::us);
        return out;
    }

private:
    void add_candidate(const Line& line) {
        lines_.push_back(line);
        for (const Point& point : points_) {
            log_ratios_.push_back(std::log((line.us + point.bytes / line.bytes_per_us) / point.us));
        }
    }

    /// Puts the best candidate at `place` of the choice; false, and nothing changes, when none lowers
    /// `error`.
    bool improve(Choice& chosen, std::size_t place, double& error) const {
        std::vector<double> others(points_.size(), std::numeric_limits<double>::infinity());
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            for (std::size_t p = 0; i != place && p < points_.size(); ++p) {
                others[p] = std::min(others[p], log_ratios_[chosen[i] * points_.size() + p]);
            }
        }
        bool better = false;
        for (std::size_t row = 0; row < lines_.size(); ++row) {
            double sum = 0.0;
            for (std::size_t p = 0; p < points_.size(); ++p) {
                const double ratio = std::min(others[p], log_ratios_[row * points_.size() + p]);
                sum += ratio * ratio;
            }
            if (sum < error - no_progress) {
                error = sum;
                chosen[place] = row;
                better = true;
            }
        }
        return better;
    }

    std::span<const Point> points_;
    std::vector<Line> lines_;
    std::vector<double> log_ratios_;  // of each line to each point
};

std::vector<Line> fitted_lines(std::span<const Point> points) {
    return Chooser(points).choose(std::max<std::size_t>(1, points.size() / points_a_line));
}

CurveFit::Residual left_out_residual(std::span<const Point> points) {
    CurveFit::Residual residual;
    for (std::size_t i = 1; i + 1 < points.size(); ++i) {
        std::vector<Point> others(points.begin(), points.end());
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
        const double error = std::abs(on_lines(fitted_lines(others), points[i].bytes) / points[i].us - 1.0);
        residual.mean += error / static_cast<double>(points.size() - 2);
        residual.worst = std::max(residual.worst, error);
    }
    return residual;
}

}  // namespace

CurveFit fit_curve(std::span<const Point> points) {
    FSDPLAN_ASSERT(points.size() >= 2, "one point makes no line");
    CurveFit fit;
    fit.lines = fitted_lines(points);
    if (points.size() >= 4) {
        fit.residual = left_out_residual(points);
    }
    return fit;
}

std::string id_of(const CalibratedCurve& curve) {
    return std::string(name(curve.kind)) + '-' + std::to_string(curve.ranks) + 'x' +
           std::to_string(curve.nodes);
}

std::vector<Point> median_points(std::span<const CalibrationSample> samples) {
    std::vector<Point> points;
    for (const CalibrationSample& sample : samples) {
        points.push_back({.bytes = sample.bytes, .us = median_of(sample.us)});
    }
    return points;
}

}  // namespace fsdplan
