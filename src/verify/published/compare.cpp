#include "verify/published/compare.hpp"

#include <array>
#include <charconv>

#include "base/quantity.hpp"
#include "verify/published/predict.hpp"

namespace fsdplan {
namespace {

constexpr const char* bytes_unit = "bytes";
constexpr const char* rate_unit = "tokens/s";

std::string shown(double value, std::string_view unit) {
    const auto whole = static_cast<std::int64_t>(value);
    return unit == bytes_unit ? show_bytes(whole) : show_integer(whole) + " " + std::string(unit);
}

class Comparison {
public:
    Comparison(const PublishedRow& row, Verification& out)
        : row_(row), table_(row.table + (row.run.compiled ? ", compiled" : "")), report_(row.id), out_(out) {}

    void add(const char* quantity, const char* unit, const std::optional<double>& published,
             const Estimate& predicted, std::int64_t live_bytes = 0) {
        if (!published) {
            return;
        }
        PublishedFigure figure{.table = table_,
                               .row = row_.id,
                               .quantity = quantity,
                               .unit = unit,
                               .published = *published,
                               .predicted = static_cast<double>(predicted.value),
                               .low = static_cast<double>(predicted.low),
                               .high = static_cast<double>(predicted.high),
                               .is_judged = row_.is_judged,
                               .live_bytes = static_cast<double>(live_bytes)};
        if (figure.is_judged && !figure.inside()) {
            report_.compare(quantity, shown(figure.published, unit),
                            shown(figure.predicted, unit) + " (" + shown(figure.low, unit) + " to " +
                                shown(figure.high, unit) + ")");
        }
        out_.figures.push_back(std::move(figure));
    }

    void add_outcome(const std::optional<bool>& published, bool predicted) {
        if (!published) {
            return;
        }
        const auto words = [](bool fits) { return fits ? "fits" : "runs out of memory"; };
        if (row_.is_judged) {
            report_.compare("outcome", words(*published), words(predicted));
        }
        out_.outcomes.push_back({.table = table_,
                                 .row = row_.id,
                                 .fits = *published,
                                 .predicted_fits = predicted,
                                 .is_judged = row_.is_judged});
    }

    void close() { report_.close(out_); }

private:
    const PublishedRow& row_;
    std::string table_;
    CaseReport report_;
    Verification& out_;
};

}  // namespace

void compare_with_published(const PublishedRow& row, Verification& out) {
    if (!row.outside.empty()) {
        skip_case(row.id, row.outside, out);
        return;
    }
    const Prediction predicted = predict(row.run);
    if (!predicted.refused.empty()) {
        skip_case(row.id, predicted.refused, out);
        return;
    }
    Comparison comparison(row, out);
    comparison.add("peak active", bytes_unit, row.peak_active_bytes, predicted.peak_active_bytes);
    comparison.add("peak reserved", bytes_unit, row.peak_reserved_bytes, predicted.peak_reserved_bytes,
                   row.run.compiled ? 0 : predicted.peak_live_bytes);
    comparison.add("peak allocated", bytes_unit, row.peak_allocated_bytes, predicted.peak_allocated_bytes);
    comparison.add("speed of one GPU", rate_unit, row.tokens_per_s, predicted.tokens_per_s);
    comparison.add_outcome(row.fits, predicted.fits);
    comparison.close();
}

}  // namespace fsdplan
