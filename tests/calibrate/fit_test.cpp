#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fsdplan/calibrate.hpp"

namespace fsdplan {
namespace {

using Point = CollectiveCurve::Point;

double relative_error(double predicted, double measured) {
    return std::abs(predicted / measured - 1.0);
}

/// The published curves of nine points or more.
std::vector<CollectiveCurve> long_curves() {
    std::vector<CollectiveCurve> curves;
    for (const Cluster& cluster : library_clusters()) {
        std::ranges::copy_if(cluster.curves, std::back_inserter(curves),
                             [](const CollectiveCurve& curve) { return curve.points.size() >= 9; });
    }
    return curves;
}

struct HalfOfACurve {
    std::vector<Point> known;
    std::vector<Point> hidden;
};

HalfOfACurve every_other(const std::vector<Point>& points, std::size_t first) {
    HalfOfACurve out;
    for (std::size_t i = 0; i < points.size(); ++i) {
        (i % 2 == first ? out.known : out.hidden).push_back(points[i]);
    }
    return out;
}

/// What the cost model makes of points alone: the slow and obvious way.
double interpolated(const std::vector<Point>& points, double bytes) {
    for (std::size_t i = 1; i < points.size(); ++i) {
        if (bytes <= points[i].bytes) {
            const Point& a = points[i - 1];
            const Point& b = points[i];
            return std::exp(std::lerp(std::log(a.us), std::log(b.us),
                                      std::log(bytes / a.bytes) / std::log(b.bytes / a.bytes)));
        }
    }
    return points.back().us * bytes / points.back().bytes;
}

TEST(FitCurve, PredictsPublishedTimesThatItHasNotSeen) {
    double sum = 0.0;
    const std::vector<CollectiveCurve> curves = long_curves();
    ASSERT_GE(curves.size(), 14U);
    for (const CollectiveCurve& curve : curves) {
        const auto [known, hidden] = every_other(curve.points, 0);
        const CurveFit fit = fit_curve(known);
        double by_fit = 0.0;
        double by_interpolation = 0.0;
        for (const Point& point : hidden) {
            const auto n = static_cast<double>(hidden.size());
            by_fit += relative_error(on_lines(fit.lines, point.bytes), point.us) / n;
            by_interpolation += relative_error(interpolated(known, point.bytes), point.us) / n;
        }
        EXPECT_LE(by_fit, by_interpolation + 0.02) << curve.id;
        sum += by_fit;
    }
    EXPECT_LE(sum / static_cast<double>(curves.size()), 0.07);
}

// The even points and not the odd ones: the first and the last are then beyond what is known.
TEST(FitCurve, PredictsAtTheEndsToo) {
    double sum = 0.0;
    const std::vector<CollectiveCurve> curves = long_curves();
    for (const CollectiveCurve& curve : curves) {
        const auto [known, hidden] = every_other(curve.points, 1);
        const CurveFit fit = fit_curve(known);
        for (const Point& point : hidden) {
            sum += relative_error(on_lines(fit.lines, point.bytes), point.us) /
                   static_cast<double>(hidden.size());
        }
    }
    EXPECT_LE(sum / static_cast<double>(curves.size()), 0.07);
}

TEST(FitCurve, Rises) {
    for (const CollectiveCurve& curve : long_curves()) {
        const CurveFit fit = fit_curve(curve.points);
        double before = 0.0;
        for (double bytes = 1.0; bytes < 1e12; bytes *= 1.3) {
            const double us = on_lines(fit.lines, bytes);
            EXPECT_GE(us, before) << curve.id << " at " << bytes;
            before = us;
        }
    }
}

TEST(FitCurve, FindsTheLinesThatMadeThePoints) {
    const std::vector<CollectiveCurve::Line> truth{{.us = 10.0, .bytes_per_us = 100.0},
                                                   {.us = 50.0, .bytes_per_us = 1000.0}};
    std::vector<Point> points;
    for (double bytes = 256.0; bytes < 3e6; bytes *= 2.0) {
        points.push_back({.bytes = bytes, .us = on_lines(truth, bytes)});
    }
    const CurveFit fit = fit_curve(points);
    for (const double bytes : {100.0, 5000.0, 1e7}) {
        EXPECT_NEAR(on_lines(fit.lines, bytes) / on_lines(truth, bytes), 1.0, 1e-6) << bytes;
    }
    ASSERT_TRUE(fit.residual);
    EXPECT_LT(fit.residual->mean, 0.05);
}

TEST(FitCurve, HasOneLineForThreePoints) {
    const std::vector<Point> points{{1024, 10}, {2048, 12}, {4096, 11}};
    const CurveFit fit = fit_curve(points);
    EXPECT_EQ(fit.lines.size(), 1U);
    EXPECT_FALSE(fit.residual);  // two points would have to foretell the third
}

TEST(FitCurve, RisesThroughTimesThatFall) {
    const std::vector<Point> points{{1024, 12}, {2048, 11}, {4096, 10}, {8192, 9}};
    const CurveFit fit = fit_curve(points);
    EXPECT_GT(on_lines(fit.lines, 1e9), on_lines(fit.lines, 1e6));
}

TEST(MedianPoints, StandBetweenTheTwoInTheMiddle) {
    const std::vector<CalibrationSample> samples{{.bytes = 8, .us = {4, 1, 9}},
                                                 {.bytes = 16, .us = {8, 2, 4, 6}}};
    const std::vector<Point> points = median_points(samples);
    ASSERT_EQ(points.size(), 2U);
    EXPECT_EQ(points[0].us, 4);
    EXPECT_EQ(points[1].us, 5);
}

}  // namespace
}  // namespace fsdplan
