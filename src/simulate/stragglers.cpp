#include <cmath>

#include "fsdplan/simulate.hpp"

namespace fsdplan {
namespace {

double normal_below(double z) {
    return 0.5 * std::erfc(-z / std::sqrt(2.0));
}

/// z with P(N < z) = p, for 0.5 <= p < 1 - 1e-9: by halving, since nothing here is worth a rational fit.
double normal_quantile(double p) {
    double low = 0.0;
    double high = 8.0;
    for (int i = 0; i < 60; ++i) {
        const double middle = 0.5 * (low + high);
        (normal_below(middle) < p ? low : high) = middle;
    }
    return low;
}

}  // namespace

StragglerTime with_stragglers(std::int64_t step_ns, double sigma, std::int64_t ranks) {
    const auto n = static_cast<double>(ranks);
    const auto at = [&](double deviations) {
        return std::llround(static_cast<double>(step_ns) * (1.0 + sigma * deviations));
    };
    return {.expected_ns = at(std::sqrt(2.0 * std::log(n))),
            .p99_ns = at(normal_quantile(std::pow(0.99, 1.0 / n)))};
}

}  // namespace fsdplan
