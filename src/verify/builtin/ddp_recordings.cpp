#include <algorithm>
#include <filesystem>
#include <map>

#include "schedule/ddp_buckets.hpp"
#include "verify/case_report.hpp"
#include "verify/ddp_case.hpp"
#include "verify/format.hpp"
#include "verify/traffic.hpp"
#include "verify/words.hpp"

// Everything that DistributedDataParallel sends, recorded (docs/formats.md, "Recordings of DDP").
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.ddp-golden";

/// The beginning of PyTorch's message; what follows may be a place in its sources.
std::string_view message(ddp::Refusal::Reason reason) {
    return reason == ddp::Refusal::Reason::unfinished
               ? "Expected to have finished reduction in the prior iteration before starting a new one"
               : "expect_autograd_hooks_ INTERNAL ASSERT FAILED";
}

class Comparison {
public:
    Comparison(const json::Value& recording, const DdpCase& run, CaseReport& report)
        : recording_(recording), run_(run), report_(report) {}

    void compare() {
        compare_construction();
        compare_training();
    }

private:
    static std::string shown(const CollectiveCall& call) {
        return joined(
            {std::string(name(call.kind)), recorded_name(call.dtype), std::to_string(call.input_numel)});
    }

    static std::string shown_row(const json::Value& row) {
        std::vector<std::string> words{std::string(row.at("e").string())};
        if (const auto dtype = row.find("dt")) {
            words.push_back(recorded_name(recorded_dtype(*dtype)));
            words.push_back(row.at("n").shown());
        }
        if (const auto gradients = row.find("names")) {
            for (const std::string& gradient : gradients->strings()) {
                words.push_back(gradient);
            }
        }
        return joined(words);
    }

    static std::vector<std::string> shown_rows(const json::Value& rows) {
        std::vector<std::string> lines;
        for (const json::Value row : rows.elements()) {
            lines.push_back(shown_row(row));
        }
        return lines;
    }

    void compare_construction() {
        std::vector<std::string> got;
        for (const CollectiveCall& call : ddp::construction(run_.parameters, run_.buffers, run_.options)) {
            got.push_back(shown(call));
        }
        compare_lines("construction", shown_rows(recording_.at("construction")), got, report_);
        report_.compare("numbers that describe shapes", "even",
                        run_.options.shape_numbers % 2 == 0 ? "even" : "odd");

        const json::Value initial = recording_.at("initial_buckets");
        std::vector<std::string> limits;
        for (const std::int64_t limit : ddp::initial_limits(run_.options)) {
            limits.push_back(limit == ddp::no_limit ? "null" : std::to_string(limit));
        }
        std::vector<std::string> recorded_limits;
        for (const json::Value limit : initial.at("limits").elements()) {
            recorded_limits.push_back(limit.shown());
        }
        compare_lines("limits", recorded_limits, limits, report_);

        compare_lines("initial buckets", recorded_buckets(recording_), own_buckets(run_), report_);
    }

    std::vector<std::string> shown_events(const std::vector<ddp::Event>& events) const {
        using Kind = ddp::Event::Kind;
        std::vector<std::string> lines;
        bool gradients = false;  // the line before is one of gradients
        for (const ddp::Event& event : events) {
            if (event.kind == Kind::gradient) {
                if (!gradients) {
                    lines.emplace_back("grads");
                }
                lines.back() += " " + run_.table.name_of(event.parameter);
            } else if (event.kind == Kind::collective) {
                lines.push_back(shown(event.call));
            } else {
                lines.emplace_back(event.kind == Kind::forward_begin    ? "forward_begin"
                                   : event.kind == Kind::backward_begin ? "backward_begin"
                                                                        : "backward_end");
            }
            gradients = event.kind == Kind::gradient;
        }
        return lines;
    }

    void compare_training() {
        const std::vector<json::Value> recorded = unfolded_iterations(recording_);
        const ddp::Training training = ddp::train(run_.parameters, run_.buffers, run_.options,
                                                  ready_order(recorded, run_), run_.iterations);
        report_.compare("iterations", std::to_string(recorded.size()),
                        std::to_string(training.iterations.size()));
        for (std::size_t i = 0; i < std::min(recorded.size(), training.iterations.size()); ++i) {
            const std::string where = "iteration " + std::to_string(i);
            compare_lines(where, shown_rows(recorded[i].at("events")), shown_events(training.iterations[i]),
                          report_);
            std::vector<std::int64_t> sizes;
            if (const auto rebuilt = recorded[i].find("rebuilt_bucket_bytes")) {
                for (const json::Value size : rebuilt->elements()) {
                    sizes.push_back(size.integer());
                }
            }
            report_.compare(where + " rebuilt bucket bytes", joined(sizes),
                            joined(training.reported_buckets[i]));
        }
        compare_error(training);
        compare_log(training);
    }

    void compare_error(const ddp::Training& training) {
        std::string got = "none";
        std::string_view begins;
        if (training.refusal) {
            begins = message(training.refusal->reason);
            got = "iteration " + std::to_string(training.refusal->iteration) +
                  " RuntimeError: " + std::string(begins);
        }
        std::string recorded = "none";
        if (const auto error = recording_.find("error")) {
            const std::string_view text = error->at("message").string();
            recorded = "iteration " + error->at("iteration").shown() + " " +
                       std::string(error->at("type").string()) + ": " +
                       std::string(text.starts_with(begins) && !begins.empty() ? begins : text);
        }
        report_.compare("error", recorded, got);
    }

    /// What DDP's own logger said at the end.
    void compare_log(const ddp::Training& training) {
        const auto logged = recording_.find("logged");
        if (!logged) {
            return;
        }
        const bool rebuilt = !training.reported_buckets.empty() && !training.reported_buckets.back().empty();
        const std::map<std::string, std::int64_t, std::less<>> got{
            {"bucket_cap_bytes", ddp::bucket_cap(run_.options)},
            {"has_rebuilt_buckets", rebuilt ? 1 : 0},
            {"gradient_as_bucket_view", run_.gradient_views ? 1 : 0},
            {"static_graph", run_.options.static_graph ? 1 : 0},
            {"find_unused_parameters", run_.options.find_unused_parameters ? 1 : 0},
            {"num_buckets_reduced", training.reported_reductions},
        };
        for (const json::Value value : logged->members()) {
            const auto found = got.find(value.key());
            report_.compare("logged " + std::string(value.key()), value.shown(),
                            found == got.end() ? "(not known)" : std::to_string(found->second));
        }
    }

    json::Value recording_;
    const DdpCase& run_;
    CaseReport& report_;
};

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string name = std::filesystem::path(path).filename().string();
    const DdpCase run = ddp_case(recording);
    if (!run.out_of_reach.empty()) {
        skip_case(name, run.out_of_reach, out);
        return;
    }
    CaseReport report(name);
    Comparison(recording, run, report).compare();
    report.close(out);
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo ddp_recordings;
constinit const RecordingInfo ddp_recordings{
    .name = "ddp",
    .help = "collectives of DistributedDataParallel (JSON with the format fsdplan.ddp-golden)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
