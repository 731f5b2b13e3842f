#include "verify/allocator_trace.hpp"

#include <limits>
#include <map>

#include "verify/allocator_words.hpp"
#include "verify/words.hpp"

namespace fsdplan {
namespace {

using Row = std::array<std::int64_t, 7>;
using Peaks = std::array<std::int64_t, 4>;

Row row_of(const AllocatorStatistics& s) {
    return {s.allocated_bytes, s.active_bytes, s.requested_bytes, s.reserved_bytes, s.segments,
            s.alloc_retries,   s.ooms};
}

Peaks peaks_of(const AllocatorStatistics& s) {
    return {s.allocated_peak_bytes, s.active_peak_bytes, s.requested_peak_bytes, s.reserved_peak_bytes};
}

class TraceReplay {
public:
    TraceReplay(const json::Value& trace, CachingAllocator& allocator)
        : trace_(trace), allocator_(allocator) {
        allocator.log_driver_calls(true);
        if (const json::Value fraction = trace.at("fraction"); !fraction.is_null()) {
            set_fraction(fraction);
        }
        const json::Value events = trace.at("events");
        if (events.string() == "at_once") {
            allocator.reached_everywhere(std::numeric_limits<std::int64_t>::max());
        } else if (events.string() != "manual") {
            events.fail("\"at_once\" or \"manual\"");
        }
        for (const json::Value calls : trace.at("driver").members()) {
            for (const json::Value call : calls.elements()) {
                calls_[std::string(calls.key())].push_back(read_call(call));
            }
        }
    }

    void replay(CaseReport& report) {
        const json::Value ops = trace_.at("ops");
        for (const char* key : {"results", "stats"}) {
            if (trace_.at(key).size() != ops.size()) {
                trace_.at(key).fail("as many entries as there are ops");
            }
        }
        auto result = trace_.at("results").elements().begin();
        auto change = trace_.at("stats").elements().begin();
        std::size_t number = 0;
        for (const json::Value op : ops.elements()) {
            replay_step(op, *result, *change, std::to_string(number++), report);
            if (!report.matches()) {
                return;
            }
            ++result;
            ++change;
        }
        compare_end(report);
    }

private:
    void replay_step(const json::Value& op, const json::Value& result, const json::Value& change,
                     const std::string& number, CaseReport& report) {
        allocator_.clear_driver_calls();
        const std::string got = run(op);
        const std::string where = "step " + number + " (" + joined(op) + ")";
        report.compare(where + " result", shown_result(result), got);
        if (change.is_array()) {
            const Row changes = read_numbers<7>(change);
            for (std::size_t i = 0; i < changes.size(); ++i) {
                recorded_.at(i) += changes.at(i);
            }
        } else if (change.integer() != 0) {
            change.fail("0 or a list of changes");
        }
        report.compare(where + " statistics", joined(recorded_), joined(row_of(allocator_.statistics())));
        const auto calls = calls_.find(number);
        const auto made = allocator_.driver_calls();
        report.compare(where + " driver calls",
                       shown_calls(calls == calls_.end() ? std::vector<DriverCall>{} : calls->second),
                       shown_calls({made.begin(), made.end()}));
    }

    // Freeing or recording what is not there is no step: the request had failed.
    std::string run(const json::Value& op) {
        std::vector<json::Value> parts;
        for (const json::Value part : op.elements()) {
            parts.push_back(part);
        }
        const std::string_view name = parts.empty() ? "" : parts[0].string();
        const auto need = [&](std::size_t size) {
            if (parts.size() != size) {
                op.fail("a step with " + std::to_string(size - 1) + " arguments");
            }
        };
        const auto stream = [](const json::Value& value) {
            return static_cast<int>(value.integer(0, CachingAllocator::most_streams - 1));
        };
        if (name == "a") {
            need(4);
            const std::int64_t id = parts[1].integer();
            if (live_.contains(id)) {
                parts[1].fail("a number that is not in use");
            }
            const Allocation got =
                allocator_.allocate(Bytes{parts[2].integer(0, largest_total)}, stream(parts[3]));
            if (got.outcome == Allocation::Outcome::placed) {
                live_[id] = got.block;
            }
            return shown_result(got);
        }
        if (name == "f") {
            need(2);
            if (const auto found = live_.find(parts[1].integer()); found != live_.end()) {
                allocator_.free(found->second);
                live_.erase(found);
            }
        } else if (name == "r") {
            need(3);
            if (const auto found = live_.find(parts[1].integer()); found != live_.end()) {
                allocator_.record_stream(found->second, stream(parts[2]));
            }
        } else if (name == "c") {
            need(2);
            allocator_.complete(stream(parts[1]));
        } else if (name == "y") {
            allocator_.synchronize();
        } else if (name == "e") {
            allocator_.empty_cache();
        } else if (name == "k") {
            peaks_.push_back(peaks_of(allocator_.statistics()));
            allocator_.reset_peaks();
        } else if (name == "g") {
            need(2);
            set_fraction(parts[1]);
        } else {
            op.fail("one of the steps a, f, r, c, y, e, k and g");
        }
        return "0";
    }

    void set_fraction(const json::Value& value) {
        const double fraction = value.number();
        if (!(fraction >= 0.0 && fraction <= 1.0)) {
            value.fail("a number from 0 to 1");
        }
        allocator_.set_memory_fraction(fraction);
    }

    void compare_end(CaseReport& report) {
        peaks_.push_back(peaks_of(allocator_.statistics()));
        const json::Value recorded = trace_.at("peaks");
        report.compare("number of peaks", std::to_string(recorded.size()), std::to_string(peaks_.size()));
        std::size_t i = 0;
        for (const json::Value row : recorded.elements()) {
            if (i < peaks_.size()) {
                report.compare("peaks " + std::to_string(i), joined(read_numbers<4>(row)), joined(peaks_[i]));
            }
            ++i;
        }
        report.compare("layout", shown_layout(trace_.at("layout")), shown_layout(allocator_.layout()));
        report.compare("inactive_split_bytes", trace_.at("inactive_split_bytes").shown(),
                       std::to_string(allocator_.inactive_split_bytes()));
    }

    json::Value trace_;
    CachingAllocator& allocator_;
    std::map<std::string, std::vector<DriverCall>> calls_;  // by step
    std::map<std::int64_t, BlockIndex> live_;
    std::vector<Peaks> peaks_;
    Row recorded_{};
};

}  // namespace

void replay_trace(const json::Value& trace, CachingAllocator& allocator, CaseReport& report) {
    TraceReplay(trace, allocator).replay(report);
}

}  // namespace fsdplan
