#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/allocator.hpp"
#include "fsdplan/verify.hpp"
#include "verify/case_report.hpp"
#include "verify/format.hpp"

// The caching allocator of PyTorch, recorded step by step under one PYTORCH_ALLOC_CONF a file, and a list of
// option strings with what became of them (docs/formats.md).
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

template <class Numbers>
std::string joined(const Numbers& numbers) {
    std::string out;
    for (const std::int64_t n : numbers) {
        out += (out.empty() ? "" : " ") + std::to_string(n);
    }
    return out;
}

template <std::size_t size>
std::array<std::int64_t, size> read_numbers(const json::Value& list) {
    if (!list.is_array() || list.size() != size) {
        list.fail("a list of " + std::to_string(size) + " numbers");
    }
    std::array<std::int64_t, size> out{};
    std::size_t i = 0;
    for (const json::Value n : list.elements()) {
        out.at(i++) = n.integer(-largest_total, largest_total);
    }
    return out;
}

constexpr std::array<std::string_view, 7> call_names{"malloc",    "free", "refused", "reserve",
                                                     "unreserve", "map",  "unmap"};

DriverCall read_call(const json::Value& list) {
    std::vector<json::Value> parts;
    for (const json::Value part : list.elements()) {
        parts.push_back(part);
    }
    if (parts.empty()) {
        list.fail("a driver call");
    }
    using Kind = DriverCall::Kind;
    const auto name = std::ranges::find(call_names, parts[0].string());
    if (name == call_names.end()) {
        parts[0].fail("the name of a driver call");
    }
    DriverCall call{.kind = static_cast<Kind>(name - call_names.begin())};
    const bool pages = call.kind == Kind::map || call.kind == Kind::unmap;
    const bool sized = call.kind != Kind::free && call.kind != Kind::unreserve;
    std::vector<std::int64_t*> numbers;
    if (call.kind != Kind::refused) {
        numbers.push_back(&call.segment);
    }
    if (pages) {
        numbers.push_back(&call.offset_bytes);
    }
    if (sized) {
        numbers.push_back(&call.bytes);
    }
    if (parts.size() != numbers.size() + 1) {
        list.fail("a driver call with " + std::to_string(numbers.size()) + " numbers");
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        *numbers[i] = parts[i + 1].integer(0, largest_total);
    }
    return call;
}

std::string shown_step(const json::Value& op) {
    std::string out;
    for (const json::Value part : op.elements()) {
        out += (out.empty() ? "" : " ") + (part.is_string() ? std::string(part.string()) : part.shown());
    }
    return out;
}

/// Calls as a multiset: in the order of their values.
std::string shown_calls(std::vector<DriverCall> calls) {
    std::ranges::sort(calls);
    std::string out;
    for (const DriverCall& call : calls) {
        out += (out.empty() ? "" : ", ") + std::string(call_names.at(static_cast<std::size_t>(call.kind)));
        if (call.segment >= 0) {
            out += " " + std::to_string(call.segment);
        }
        out += " +" + std::to_string(call.offset_bytes) + " " + std::to_string(call.bytes);
    }
    return out.empty() ? "none" : out;
}

std::string shown_result(const Allocation& got) {
    switch (got.outcome) {
        case Allocation::Outcome::out_of_memory:
            return "null";
        case Allocation::Outcome::empty:
            return "0";
        case Allocation::Outcome::placed:
            break;
    }
    return joined(std::array{got.segment, got.offset_bytes, got.block_bytes});
}

std::string shown_result(const json::Value& recorded) {
    return recorded.is_array() ? joined(read_numbers<3>(recorded)) : recorded.shown();
}

std::string shown_layout(const json::Value& layout) {
    std::string out;
    for (const json::Value run : layout.elements()) {
        for (const json::Value part : run.elements()) {
            if (!part.is_array()) {
                out += (part.is_string() ? std::string(part.string()) : part.shown()) + " ";
                continue;
            }
            for (const json::Value block : part.elements()) {
                out += "[" + joined(read_numbers<2>(block)) + "]";
            }
        }
        out += "; ";
    }
    return out;
}

std::string shown_layout(const std::vector<CachingAllocator::SegmentView>& layout) {
    std::string out;
    for (const CachingAllocator::SegmentView& run : layout) {
        out += joined(std::array{run.segment, run.offset_bytes, run.bytes, std::int64_t{run.stream}});
        out += run.small ? " small " : " large ";
        for (const CachingAllocator::BlockView& block : run.blocks) {
            const int state = block.state == CachingAllocator::State::free        ? 0
                              : block.state == CachingAllocator::State::allocated ? 1
                                                                                  : 2;
            out += "[" + joined(std::array{block.bytes, std::int64_t{state}}) + "]";
        }
        out += "; ";
    }
    return out;
}

/// Replays the steps of one trace. Stops at the first that differs, since all that follows depends on it.
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
        const std::string where = "step " + number + " (" + shown_step(op) + ")";
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

void replay_traces(const json::Value& file, const std::string& name, Verification& out) {
    require_version(file, "schema");
    const json::Value conf = file.at("conf");
    const AllocatorOptions options = parse_alloc_conf(conf.string(), conf.where());
    CachingAllocator allocator{Bytes{0}};
    std::size_t number = 0;
    for (const json::Value trace : file.at("traces").elements()) {
        CaseReport report(name + " trace " + std::to_string(number++) + " (" +
                          std::string(trace.at("name").string()) + ")");
        allocator.reset(Bytes{trace.at("memory").integer(0, CachingAllocator::most_memory.count)}, options);
        TraceReplay(trace, allocator).replay(report);
        report.close(out);
    }
}

// What one request of 3 MiB reserves under each option string, or that PyTorch refuses the string.
void replay_options(const json::Value& file, const std::string& name, Verification& out) {
    for (const json::Value row : file.elements()) {
        const std::string_view conf = row.at("conf").string();
        CaseReport report(name + " \"" + std::string(conf) + "\"");
        std::string expected = "refused";
        if (const auto reserved = row.find("reserved")) {
            expected = reserved->shown() + " bytes";
        } else if (row.at("error").string() == "OutOfMemoryError") {
            expected = "out of memory";
        }
        std::string got;
        try {
            CachingAllocator allocator(80_GiB, parse_alloc_conf(conf));
            got = allocator.allocate(3_MiB, 0).out_of_memory()
                      ? "out of memory"
                      : std::to_string(allocator.statistics().reserved_bytes) + " bytes";
        } catch (const Error&) {
            got = "refused";
        }
        report.compare("outcome", expected, got);
        report.close(out);
    }
}

bool has(std::string_view head, std::initializer_list<std::string_view> keys) {
    return std::ranges::all_of(keys, [&](std::string_view key) { return head.find(key) != head.npos; });
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo allocator_traces;
constinit const RecordingInfo allocator_traces{
    .name = "allocator",
    .help = "allocator traces (NAME.json[.gz] with conf and traces, or options.json)",
    .recognises =
        [](const std::string& path, std::string_view head) {
            const bool json = path.ends_with(".json") || path.ends_with(".json.gz");
            return json && (has(head, {"\"schema\"", "\"conf\"", "\"traces\""}) ||
                            (head.starts_with("[") && has(head, {"\"conf\"", "\"reserved\""})));
        },
    .replay =
        [](const std::string& path, Verification& out) {
            const json::Document document(read_text(path), path);
            const std::string name = std::filesystem::path(path).filename().string();
            const auto replay = document.root().is_array() ? replay_options : replay_traces;
            replay(document.root(), name, out);
        },
};

}  // namespace builtin::recording
}  // namespace fsdplan
