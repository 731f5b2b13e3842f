#include "verify/memory_tracker_compare.hpp"

#include <algorithm>

#include "verify/case_report.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t parts_of_peak = 100;  // a number may be off by one of them
constexpr std::string_view total = "Total";

// DTensor works out the shapes of results with fake tensors of the whole parameter's size. The tracker leaves
// such operators out by comparing the fake mode with the one that it was entered in: in a FakeTensorMode of
// the user's they are the same, and counted. Results are cached, so that only the first step of all shows it.
constexpr const char* counts_whole_parameters =
    "FSDPMemTracker is wrong here: in a FakeTensorMode it counts tensors of whole parameters' size, by which "
    "DTensor infers shapes in the optimizer's first step";

std::int64_t bytes_in(const json::Value& snapshot, std::string_view category) {
    const auto bytes = snapshot.find(category);
    return bytes ? bytes->integer(0, largest_total) : 0;
}

class Comparison {
public:
    Comparison(const std::string& name, bool is_fake, Verification& out)
        : name_(name), is_fake_(is_fake), report_(name), out_(out) {}

    void compare(std::size_t i, const json::Value& recorded, const TrackedIteration& got) {
        const std::string where = "iteration " + std::to_string(i);
        const json::Value peak = recorded.at("peak");
        tolerance_ = bytes_in(peak, total) / parts_of_peak;
        const bool counts_more = bytes_in(peak, total) > got.peak.total();
        if (is_fake_ && i == 0 && counts_more && bytes_in(peak, name(TrackerCategory::optimizer_state)) > 0) {
            out_.skips.push_back({.case_name = name_ + " " + where + " peak of " + peak.at(total).shown() +
                                               " bytes (here " + std::to_string(got.peak.total()) + ")",
                                  .reason = counts_whole_parameters});
            tolerance_ = got.peak.total() / parts_of_peak;
        } else {
            compare(where + " peak", peak, got.peak);
            out_.deviations.push_back({.quantity = "peak of FSDPMemTracker",
                                       .case_name = name_ + " " + where,
                                       .expected = bytes_in(peak, total),
                                       .got = got.peak.total()});
        }
        compare(where + " after backward", recorded.at("after_backward"), got.after_backward);
    }

    void close() { report_.close(out_); }

private:
    void compare(const std::string& where, const json::Value& recorded, const TrackerSnapshot& got) {
        compare(where, total, bytes_in(recorded, total), got.total());
        for (std::size_t c = 0; c < tracker_category_count; ++c) {
            const std::string_view category = name(static_cast<TrackerCategory>(c));
            compare(where, category, bytes_in(recorded, category), got.bytes[c]);
        }
    }

    void compare(const std::string& where, std::string_view what, std::int64_t expected, std::int64_t got) {
        if (std::max(expected, got) - std::min(expected, got) > tolerance_) {
            report_.compare(where + ", " + std::string(what), std::to_string(expected) + " bytes",
                            std::to_string(got) + " bytes");
        }
    }

    std::string name_;
    bool is_fake_;
    CaseReport report_;
    Verification& out_;
    std::int64_t tolerance_ = 0;
};

}  // namespace

void compare_tracked(const std::string& name, const json::Value& iterations, bool is_fake,
                     const std::vector<TrackedIteration>& got, Verification& out) {
    Comparison comparison(name, is_fake, out);
    std::size_t i = 0;
    for (const json::Value recorded : iterations.elements()) {
        comparison.compare(i, recorded, got[i]);
        ++i;
    }
    comparison.close();
}

}  // namespace fsdplan
