#include <algorithm>
#include <cmath>

#include "base/median.hpp"
#include "fsdplan/verify.hpp"

namespace fsdplan {
double Deviation::error() const {
    if (expected == 0) {
        return got == 0 ? 0.0 : 1.0;
    }
    return std::abs(static_cast<double>(got - expected)) / std::abs(static_cast<double>(expected));
}

std::vector<Accuracy> accuracies(const Verification& result) {
    std::vector<Accuracy> out;
    std::vector<std::vector<double>> errors;
    for (const Deviation& deviation : result.deviations) {
        auto found = std::ranges::find(out, deviation.quantity, &Accuracy::quantity);
        if (found == out.end()) {
            out.push_back({.quantity = deviation.quantity});
            errors.emplace_back();
            found = std::prev(out.end());
        }
        const double error = deviation.error();
        if (found->count == 0 || error > found->worst) {
            found->worst = error;
            found->worst_case = deviation.case_name;
        }
        ++found->count;
        found->within_half_percent += error <= 0.005 ? 1U : 0U;
        found->within_two_percent += error <= 0.02 ? 1U : 0U;
        found->within_five_percent += error <= 0.05 ? 1U : 0U;
        errors[static_cast<std::size_t>(found - out.begin())].push_back(error);
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i].median = median_of(errors[i]);
    }
    return out;
}

}  // namespace fsdplan
