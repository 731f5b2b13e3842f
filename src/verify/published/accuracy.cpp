#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/median.hpp"
#include "fsdplan/verify.hpp"

namespace fsdplan {
namespace {

std::vector<double> errors_of(const std::vector<const PublishedFigure*>& figures, double factor) {
    std::vector<double> out;
    for (const PublishedFigure* figure : figures) {
        out.push_back(std::abs(factor * figure->live_bytes / figure->published - 1.0));
    }
    return out;
}

}  // namespace

std::vector<TableAccuracy> table_accuracies(const Verification& result) {
    std::vector<TableAccuracy> out;
    std::vector<std::vector<double>> errors;
    for (const PublishedFigure& figure : result.figures) {
        if (!figure.is_judged) {
            continue;
        }
        auto found = std::ranges::find_if(out, [&](const TableAccuracy& row) {
            return row.table == figure.table && row.quantity == figure.quantity;
        });
        if (found == out.end()) {
            out.push_back({.table = figure.table, .quantity = figure.quantity});
            errors.emplace_back();
            found = std::prev(out.end());
        }
        const double error = std::abs(figure.signed_error());
        if (found->count == 0 || error > found->worst) {
            found->worst = error;
            found->worst_row = figure.row;
        }
        ++found->count;
        found->bias += figure.signed_error();
        found->inside += figure.inside() ? 1U : 0U;
        errors[static_cast<std::size_t>(found - out.begin())].push_back(error);
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i].median = median_of(errors[i]);
        out[i].bias /= static_cast<double>(out[i].count);
    }
    return out;
}

// The mean of absolute errors is piecewise linear in the factor, so that it is least where one of them is 0.
std::optional<FactorAccuracy> best_single_factor(const Verification& result) {
    std::vector<const PublishedFigure*> figures;
    std::vector<double> replay;
    for (const PublishedFigure& figure : result.figures) {
        if (figure.is_judged && figure.live_bytes > 0.0) {
            figures.push_back(&figure);
            replay.push_back(std::abs(figure.signed_error()));
        }
    }
    if (figures.empty()) {
        return std::nullopt;
    }
    FactorAccuracy out{.count = figures.size(),
                       .replay_median = median_of(replay),
                       .replay_worst = *std::ranges::max_element(replay)};
    double least = 0.0;
    for (const PublishedFigure* figure : figures) {
        const double factor = figure->published / figure->live_bytes;
        const std::vector<double> errors = errors_of(figures, factor);
        const double sum = std::accumulate(errors.begin(), errors.end(), 0.0);
        if (out.factor == 0.0 || sum < least) {
            least = sum;
            out.factor = factor;
            out.median = median_of(errors);
            out.worst = *std::ranges::max_element(errors);
        }
    }
    return out;
}

}  // namespace fsdplan
