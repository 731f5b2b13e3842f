#include "published_output.hpp"

#include <fmt/core.h>

namespace fsdplan::cli {
namespace {

std::string shown(double value, std::string_view unit) {
    constexpr double gib = 1024.0 * 1024.0 * 1024.0;
    return unit == "bytes" ? fmt::format("{:.2f} GiB", value / gib) : fmt::format("{:.0f} {}", value, unit);
}

const char* word(bool fits) {
    return fits ? "fits" : "runs out of memory";
}

}  // namespace

void print_published(const Verification& result) {
    for (const PublishedFigure& f : result.figures) {
        fmt::print("{}: {}: predicted {} ({} to {}), published {}: {:+.1f} %{}\n", f.row, f.quantity,
                   shown(f.predicted, f.unit), shown(f.low, f.unit), shown(f.high, f.unit),
                   shown(f.published, f.unit), 100.0 * f.signed_error(), f.is_judged ? "" : ", not judged");
    }
    if (!result.figures.empty()) {
        fmt::print("published figures: predicted as PyTorch 2.13, the nearest version that is known\n");
    }
    for (const PublishedOutcome& o : result.outcomes) {
        if (!o.fits || !o.predicted_fits) {
            fmt::print("{}: predicted: {}, published: {}: {}\n", o.row, word(o.predicted_fits), word(o.fits),
                       o.fits == o.predicted_fits ? "right" : "wrong");
        }
    }
    for (const TableAccuracy& t : table_accuracies(result)) {
        fmt::print(
            "{}, {}, {} rows: median error {:.1f} %, worst {:.1f} % ({}), bias {:+.1f} %; in the interval: "
            "{}\n",
            t.table, t.quantity, t.count, 100.0 * t.median, 100.0 * t.worst, t.worst_row, 100.0 * t.bias,
            t.inside);
    }
    if (const auto f = best_single_factor(result)) {
        fmt::print(
            "reserved peaks of {} eager rows: median error {:.1f} %, worst {:.1f} % by allocator replay; "
            "{:.1f} % and {:.1f} % by the best single factor on our live bytes, {:.3f}\n",
            f->count, 100.0 * f->replay_median, 100.0 * f->replay_worst, 100.0 * f->median, 100.0 * f->worst,
            f->factor);
    }
}

void add_published(const Verification& result, nlohmann::ordered_json& out) {
    out["figures"] = nlohmann::ordered_json::array();
    for (const PublishedFigure& f : result.figures) {
        out["figures"].push_back({{"table", f.table},
                                  {"row", f.row},
                                  {"quantity", f.quantity},
                                  {"unit", f.unit},
                                  {"published", f.published},
                                  {"predicted", f.predicted},
                                  {"low", f.low},
                                  {"high", f.high},
                                  {"judged", f.is_judged}});
    }
    out["outcomes"] = nlohmann::ordered_json::array();
    for (const PublishedOutcome& o : result.outcomes) {
        out["outcomes"].push_back({{"table", o.table},
                                   {"row", o.row},
                                   {"fits", o.fits},
                                   {"predicted_fits", o.predicted_fits},
                                   {"judged", o.is_judged}});
    }
    out["table_accuracies"] = nlohmann::ordered_json::array();
    for (const TableAccuracy& t : table_accuracies(result)) {
        out["table_accuracies"].push_back({{"table", t.table},
                                           {"quantity", t.quantity},
                                           {"rows", t.count},
                                           {"median", t.median},
                                           {"worst", t.worst},
                                           {"worst_row", t.worst_row},
                                           {"bias", t.bias},
                                           {"inside", t.inside}});
    }
    if (const auto f = best_single_factor(result)) {
        out["best_single_factor"] = {{"factor", f->factor},
                                     {"rows", f->count},
                                     {"median", f->median},
                                     {"worst", f->worst},
                                     {"replay_median", f->replay_median},
                                     {"replay_worst", f->replay_worst}};
    }
}

}  // namespace fsdplan::cli
