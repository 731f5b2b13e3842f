#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/report.hpp"
#include "report/operation_names.hpp"

namespace fsdplan {
namespace {

constexpr std::array<std::string_view, stream_count> usual_stream_names{"compute", "pre-gather", "gather",
                                                                        "reduce",  "all-reduce", "transfer"};
// Tracks from top to bottom.
constexpr int host_track = 1;
constexpr int waits_track = 2;
constexpr int first_stream_track = 3;

/// Microseconds as viewers want them, to the nanosecond: both ends of a slice are exact, so neighbours never
/// overlap.
std::string us(std::int64_t ns) {
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string gib(std::int64_t bytes) {
    return fmt::format("{:.6f}", static_cast<double>(bytes) / 0x1p30);
}

/// Bus bandwidth as nccl-tests defines it.
double bus_bytes_per_s(const CollectiveCall& call, std::int64_t ns) {
    if (ns <= 0 || call.ranks < 2) {
        return 0.0;
    }
    const auto ranks = static_cast<double>(call.ranks);
    double factor = (ranks - 1.0) / ranks;
    if (call.kind == CollectiveKind::all_reduce) {
        factor *= 2.0;
    } else if (call.kind == CollectiveKind::broadcast || call.kind == CollectiveKind::reduce) {
        factor = 1.0;
    }
    return static_cast<double>(call.full_size().count) * factor / (static_cast<double>(ns) * 1e-9);
}

std::string_view group_name(RankGroup group) {
    switch (group) {
        case RankGroup::shard:
            return "shard";
        case RankGroup::replicate:
            return "replicate";
        case RankGroup::post_forward:
            return "post_forward";
        case RankGroup::world:
            return "world";
    }
    return "";
}

class Trace {
public:
    Trace(const Schedule& schedule, const Run& run, const TraceOptions& options)
        : schedule_(schedule), run_(run), options_(options) {}

    std::string write() {
        add_operations();
        add_waits();
        add_memory();
        add_iterations();
        std::ranges::stable_sort(events_, {}, &Event::at_ns);
        std::string out = "{\"traceEvents\": [\n";
        add_metadata(out);
        for (const Event& event : events_) {
            out += ",\n" + event.text;
        }
        out += "\n], \"displayTimeUnit\": \"ms\", \"otherData\": {\"producer\": \"fsdplan\", \"version\": " +
               json::quote(options_.version) + ", \"runtime\": " + json::quote(schedule_.runtime) +
               ", \"plan\": " + json::quote(options_.plan) +
               ", \"method\": " + json::quote(name(run_.method)) +
               ", \"predicted\": " + (predicted() ? "\"true\"" : "\"false\"") + "}}\n";
        return out;
    }

private:
    struct Event {
        std::int64_t at_ns = 0;
        std::string text;
    };

    bool predicted() const { return run_.method != Method::measured; }

    std::string head(std::string_view phase, std::string_view shown) const {
        return fmt::format(R"({{"ph": "{}", "pid": {}, "name": {})", phase, options_.rank,
                           json::quote(shown));
    }

    void slice(std::string_view shown, std::string_view category, int track, std::int64_t start_ns,
               std::int64_t end_ns, const std::string& arguments) {
        events_.push_back(
            {start_ns,
             fmt::format(R"({}, "cat": "{}", "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
                         head("X", shown), category, track, us(start_ns), us(end_ns - start_ns), arguments)});
    }

    std::string common_arguments(std::size_t i) const {
        return fmt::format(R"("operation": {}, "pass": "{}")", i, name(schedule_.ops[i].pass));
    }

    std::string collective_arguments(std::size_t i) const {
        const Op& op = schedule_.ops[i];
        const auto row = static_cast<std::size_t>(op.target);
        const CollectiveCall& call = schedule_.collectives[row];
        const std::int64_t ns = run_.timeline.end_ns[i] - run_.timeline.start_ns[i];
        std::string text = fmt::format(
            R"(, "unit": {}, "dtype": "{}", "bytes": {}, "input_numel": {}, "output_numel": {}, "group": "{}", "group_size": {}, "busbw_GBps": {:.3f}, "prefetched": {})",
            json::quote(place_name(schedule_, {}, op.unit, -1)), name(call.dtype), call.full_size().count,
            call.input_numel, call.output_numel, group_name(call.group), call.ranks,
            bus_bytes_per_s(call, ns) * 1e-9, op.prefetched != 0);
        if (row < run_.collectives.size()) {
            text += ", \"time_from\": " + json::quote(name(run_.collectives[row].origin));
            if (!run_.collectives[row].curve.empty()) {
                text += ", \"curve\": " + json::quote(run_.collectives[row].curve);
            }
        }
        return text;
    }

    void add_operations() {
        const Timeline& time = run_.timeline;
        for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
            const Op& op = schedule_.ops[i];
            const int track = first_stream_track + static_cast<int>(op.stream);
            const std::string place = place_name(schedule_, options_.modules, op.unit, op.module);
            switch (op.kind) {
                case OpKind::compute:
                    stream_slice(i, place, "compute", track,
                                 fmt::format(R"(, "flops": {}, "bytes": {}, "launches": {})", op.flops,
                                             op.bytes, op.launches));
                    break;
                case OpKind::copy:
                case OpKind::to_device:
                case OpKind::to_host:
                    stream_slice(i, std::string(name(op.kind)) + " " + place, "copy", track,
                                 fmt::format(R"(, "bytes": {})", op.bytes));
                    break;
                case OpKind::collective: {
                    const CollectiveCall& call = schedule_.collectives[static_cast<std::size_t>(op.target)];
                    stream_slice(i, std::string(name(call.kind)) + " " + place, "collective", track,
                                 collective_arguments(i));
                    break;
                }
                case OpKind::host:
                    slice((op.target == static_cast<std::int32_t>(HostWork::optimizer) ? "optimizer step "
                                                                                       : "hooks ") +
                              place,
                          "host", host_track, time.start_ns[i], time.end_ns[i], common_arguments(i));
                    break;
                case OpKind::block:
                    if (time.end_ns[i] > time.issued_ns[i]) {
                        slice("blocked", "host", host_track, time.issued_ns[i], time.end_ns[i],
                              common_arguments(i));
                    }
                    break;
                case OpKind::allocate:
                    if (time.end_ns[i] > time.issued_ns[i]) {
                        slice("allocator retry", "host", host_track, time.issued_ns[i], time.end_ns[i],
                              common_arguments(i));
                    }
                    break;
                default:
                    break;
            }
        }
    }

    void stream_slice(std::size_t i, const std::string& shown, std::string_view category, int track,
                      const std::string& arguments) {
        used_[static_cast<std::size_t>(schedule_.ops[i].stream)] = true;
        slice(shown, category, track, run_.timeline.start_ns[i], run_.timeline.end_ns[i],
              common_arguments(i) + arguments);
    }

    void add_waits() {
        for (const ExposedWait& wait : run_.waits) {
            const std::string culprit = wait.culprit < 0 ? std::string("null") : std::to_string(wait.culprit);
            slice("waits: " + std::string(name(wait.cause)), "wait", waits_track, wait.start_ns, wait.end_ns,
                  fmt::format(R"("operation": {}, "culprit": {})", wait.op, culprit));
        }
    }

    void add_iterations() {
        for (std::size_t k = 0; k < run_.iterations.size(); ++k) {
            const std::int64_t at = run_.iterations[k].begin_ns;
            events_.push_back(
                {at, fmt::format(R"({}, "s": "p", "tid": {}, "ts": {}}})",
                                 head("i", fmt::format("iteration {}", k)), host_track, us(at))});
        }
    }

    /// One counter with a series for each category that ever holds anything. A relabel's two changes are one.
    void add_memory() {
        if (!run_.memory || run_.timeline.issued_ns.empty()) {
            return;
        }
        const std::vector<MemoryChange>& changes = run_.memory->changes;
        std::array<bool, category_count> present{};
        for (const MemoryChange& change : changes) {
            present[static_cast<std::size_t>(change.category)] = true;
        }
        std::array<std::int64_t, category_count> bytes{};
        for (std::size_t i = 0; i < changes.size(); ++i) {
            bytes[static_cast<std::size_t>(changes[i].category)] += changes[i].delta_bytes;
            const std::int64_t at = time_of(changes[i]);
            if (i + 1 < changes.size() && changes[i + 1].op == changes[i].op) {
                continue;
            }
            std::string series;
            for (std::size_t c = 0; c < category_count; ++c) {
                if (present[c]) {
                    series += fmt::format(R"({}"{}": {})", series.empty() ? "" : ", ",
                                          name(static_cast<Category>(c)), gib(bytes[c]));
                }
            }
            counter("memory (GiB)", at, series);
            if (run_.memory->reserved_peak_bytes) {
                counter("reserved (GiB)", at, "\"reserved\": " + gib(changes[i].reserved_bytes));
            }
        }
    }

    std::int64_t time_of(const MemoryChange& change) const {
        return run_.timeline.issued_ns[static_cast<std::size_t>(change.op)];
    }

    void counter(std::string_view shown, std::int64_t at_ns, const std::string& series) {
        events_.push_back(
            {at_ns, fmt::format(R"({}, "ts": {}, "args": {{{}}}}})", head("C", shown), us(at_ns), series)});
    }

    void add_metadata(std::string& out) const {
        out += fmt::format(
            R"({}, "args": {{"name": {}}}}})", head("M", "process_name"),
            json::quote(fmt::format("rank {} ({})", options_.rank, predicted() ? "predicted" : "measured")));
        const auto track = [&](int id, std::string_view shown) {
            out += fmt::format(",\n{}, \"tid\": {}, \"args\": {{\"name\": {}}}}}", head("M", "thread_name"),
                               id, json::quote(shown));
            out += fmt::format(",\n{}, \"tid\": {}, \"args\": {{\"sort_index\": {}}}}}",
                               head("M", "thread_sort_index"), id, id);
        };
        track(host_track, "host");
        track(waits_track, "compute waits for");
        for (std::size_t s = 0; s < stream_count; ++s) {
            if (used_[s]) {
                const std::string_view given = schedule_.stream_names[s];
                track(first_stream_track + static_cast<int>(s),
                      std::string(given.empty() ? usual_stream_names[s] : given) + " stream");
            }
        }
    }

    const Schedule& schedule_;
    const Run& run_;
    const TraceOptions& options_;
    std::vector<Event> events_;
    std::array<bool, stream_count> used_{};
};

}  // namespace

std::string trace_report(const Schedule& schedule, const Run& run, const TraceOptions& options) {
    return Trace(schedule, run, options).write();
}

}  // namespace fsdplan
