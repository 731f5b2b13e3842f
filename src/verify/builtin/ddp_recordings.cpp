#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "schedule/ddp_buckets.hpp"
#include "verify/format.hpp"
#include "verify/traffic.hpp"

// Everything that DistributedDataParallel sends, recorded (docs/formats.md, "Recordings of DDP").
//
// Two things cannot be derived from a recording and are taken from it: the order in which the gradients of
// the first backward became ready (autograd's, all later ones must repeat it), and the number of sizes and
// strides that describe the parameters (shapes are not recorded). That a gradient is sparse shows in the
// first buckets only, where an otherwise unlimited bucket holds it alone.
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.ddp-golden";

/// The beginning of PyTorch's message; what follows may be a place in its sources.
std::string_view message(ddp::Refusal::Reason reason) {
    return reason == ddp::Refusal::Reason::unfinished
               ? "Expected to have finished reduction in the prior iteration before starting a new one"
               : "expect_autograd_hooks_ INTERNAL ASSERT FAILED";
}

using Rows = std::map<std::string, std::int32_t, std::less<>>;

/// Sizes are given in MiB and may be fractions.
std::int64_t cap_bytes(const json::Value& mib) {
    const double bytes = mib.number() * (1 << 20);
    if (!(bytes >= 0 && bytes <= static_cast<double>(largest_total))) {
        mib.fail("a size in MiB");
    }
    return static_cast<std::int64_t>(bytes);
}

bool setting(const json::Value& settings, std::string_view key, bool otherwise) {
    const auto value = settings.find(key);
    return value ? value->boolean() : otherwise;
}

class DdpRecording {
public:
    DdpRecording(const json::Value& file, std::string name) : file_(file), name_(std::move(name)) {}

    void replay(Verification& out) {
        if (const std::string reason = out_of_reach(); !reason.empty()) {
            skip_case(name_, reason, out);
            return;
        }
        read_model();
        read_options();
        mark_sparse();
        CaseReport report(name_);
        compare_construction(report);
        compare_training(report);
        report.close(out);
    }

private:
    /// Why this case cannot be replayed, or "".
    std::string out_of_reach() const {
        if (!file_.find("parameters")) {
            return "the run was refused before anything of the model was recorded";
        }
        if (const auto settings = file_.at("case").find("ddp")) {
            for (const json::Value value : settings->members()) {
                constexpr std::array known{
                    "bucket_cap_mb", "bucket_cap_mb_list",      "find_unused_parameters",
                    "static_graph",  "gradient_as_bucket_view", "broadcast_buffers",
                    "init_sync"};
                if (std::ranges::find(known, value.key()) == known.end()) {
                    return "no rule is known for the argument " + std::string(value.key());
                }
            }
        }
        if (const auto hook = file_.at("case").find("hook")) {
            constexpr std::array known{"fp16", "bf16", "allreduce"};
            if (std::ranges::find(known, hook->string()) == known.end()) {
                return "no rule is known for the communication hook " + std::string(hook->string());
            }
        }
        return "";
    }

    void read_model() {
        std::vector<std::string> ignored;
        if (const auto names = file_.at("case").find("ignore")) {
            ignored = names->strings();
        }
        const auto is_ignored = [&](std::string_view name) {
            return std::ranges::find(ignored, name) != ignored.end();
        };
        std::int64_t total = 0;
        const auto numel_of = [&](const json::Value& row) {
            const json::Value numel = row.at("numel");
            total = checked_add(total, numel.integer(0, largest_total), numel.where());
            return numel.integer();
        };
        for (const json::Value row : file_.at("parameters").elements()) {
            const std::string_view name = row.at("name").string();
            if (!rows_.emplace(name, static_cast<std::int32_t>(parameters_.size())).second) {
                row.at("name").fail("a name that no other parameter has");
            }
            names_.emplace_back(name);
            parameters_.push_back({.dtype = recorded_dtype(row.at("dt")),
                                   .numel = numel_of(row),
                                   .trainable = setting(row, "requires_grad", true),
                                   .ignored = is_ignored(name)});
        }
        if (const auto buffers = file_.find("buffers")) {
            for (const json::Value row : buffers->elements()) {
                if (!is_ignored(row.at("name").string())) {
                    buffers_.push_back({.dtype = recorded_dtype(row.at("dt")), .numel = numel_of(row)});
                }
            }
        }
    }

    std::vector<std::string> shown_buckets() const {
        std::vector<std::string> lines;
        for (const ddp::Bucket& bucket : ddp::initial_buckets(parameters_, options_)) {
            std::vector<std::string> names;
            for (const std::int32_t row : bucket.parameters) {
                names.push_back(name_of(row));
            }
            lines.push_back(joined(names));
        }
        return lines;
    }

    std::vector<std::string> recorded_buckets() const {
        std::vector<std::string> lines;
        for (const json::Value bucket : file_.at("initial_buckets").at("buckets").elements()) {
            lines.push_back(joined(bucket.strings()));
        }
        return lines;
    }

    void mark_sparse() {
        if (shown_buckets() == recorded_buckets()) {
            return;
        }
        const std::int64_t least = std::ranges::min(ddp::initial_limits(options_));
        for (const json::Value bucket : file_.at("initial_buckets").at("buckets").elements()) {
            for (const json::Value name : bucket.elements()) {
                ddp::Parameter& parameter = parameters_[static_cast<std::size_t>(row_of(name))];
                parameter.sparse =
                    bucket.size() == 1 && bytes_of(parameter.numel, parameter.dtype).count < least;
            }
        }
    }

    void read_options() {
        const json::Value settings = file_.at("case");
        options_.ranks = settings.at("world").integer(1, 1 << 24);
        iterations_ = settings.at("iters").integer(1, 1000);
        if (const auto accumulate = settings.find("accum")) {
            options_.accumulate = accumulate->integer(1, 1000);
        }
        if (const auto hook = settings.find("hook"); hook && hook->string() != "allreduce") {
            options_.hook_dtype = dtype_from_name(hook->string());
        }
        if (const auto arguments = settings.find("ddp")) {
            if (const auto cap = arguments->find("bucket_cap_mb")) {
                options_.bucket_cap_bytes = cap_bytes(*cap);
            }
            if (const auto list = arguments->find("bucket_cap_mb_list")) {
                for (const json::Value cap : list->elements()) {
                    options_.bucket_cap_list.push_back(cap_bytes(cap));
                }
            }
            options_.find_unused_parameters = setting(*arguments, "find_unused_parameters", false);
            options_.static_graph = setting(*arguments, "static_graph", false);
            options_.broadcast_buffers = setting(*arguments, "broadcast_buffers", true);
            options_.init_sync = setting(*arguments, "init_sync", true);
            gradient_views_ = setting(*arguments, "gradient_as_bucket_view", false);
        }
        // Two numbers for every dimension of every reduced parameter.
        for (const json::Value row : file_.at("construction").elements()) {
            if (row.at("e").string() == "broadcast" && row.at("dt").string() == "i64") {
                options_.shape_numbers = row.at("n").integer(0, largest_total);
                break;
            }
        }
    }

    std::int32_t row_of(const json::Value& name) const {
        const auto found = rows_.find(name.string());
        if (found == rows_.end()) {
            name.fail("the name of a parameter");
        }
        return found->second;
    }

    const std::string& name_of(std::int32_t row) const { return names_[static_cast<std::size_t>(row)]; }

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

    void compare_construction(CaseReport& report) const {
        std::vector<std::string> got;
        for (const CollectiveCall& call : ddp::construction(parameters_, buffers_, options_)) {
            got.push_back(shown(call));
        }
        compare_lines("construction", shown_rows(file_.at("construction")), got, report);
        report.compare("numbers that describe shapes", "even",
                       options_.shape_numbers % 2 == 0 ? "even" : "odd");

        const json::Value initial = file_.at("initial_buckets");
        std::vector<std::string> limits;
        for (const std::int64_t limit : ddp::initial_limits(options_)) {
            limits.push_back(limit == ddp::no_limit ? "null" : std::to_string(limit));
        }
        std::vector<std::string> recorded_limits;
        for (const json::Value limit : initial.at("limits").elements()) {
            recorded_limits.push_back(limit.shown());
        }
        compare_lines("limits", recorded_limits, limits, report);

        compare_lines("initial buckets", recorded_buckets(), shown_buckets(), report);
    }

    /// Gradients of the first backward.
    std::vector<std::int32_t> ready_order(const std::vector<json::Value>& iterations) const {
        std::vector<std::int32_t> ready;
        if (iterations.empty()) {
            return ready;
        }
        for (const json::Value row : iterations.front().at("events").elements()) {
            if (row.at("e").string() == "backward_end") {
                break;
            }
            if (const auto names = row.find("names")) {
                for (const json::Value name : names->elements()) {
                    ready.push_back(row_of(name));
                }
            }
        }
        return ready;
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
                lines.back() += " " + name_of(event.parameter);
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

    static std::string shown_sizes(const std::vector<std::int64_t>& sizes) {
        std::vector<std::string> words;
        for (const std::int64_t size : sizes) {
            words.push_back(std::to_string(size));
        }
        return joined(words);
    }

    void compare_training(CaseReport& report) const {
        const std::vector<json::Value> recorded = unfolded_iterations(file_);
        const ddp::Training training =
            ddp::train(parameters_, buffers_, options_, ready_order(recorded), iterations_);
        report.compare("iterations", std::to_string(recorded.size()),
                       std::to_string(training.iterations.size()));
        for (std::size_t i = 0; i < std::min(recorded.size(), training.iterations.size()); ++i) {
            const std::string where = "iteration " + std::to_string(i);
            compare_lines(where, shown_rows(recorded[i].at("events")), shown_events(training.iterations[i]),
                          report);
            std::vector<std::int64_t> sizes;
            if (const auto rebuilt = recorded[i].find("rebuilt_bucket_bytes")) {
                for (const json::Value size : rebuilt->elements()) {
                    sizes.push_back(size.integer());
                }
            }
            report.compare(where + " rebuilt bucket bytes", shown_sizes(sizes),
                           shown_sizes(training.reported_buckets[i]));
        }
        compare_error(training, report);
        compare_log(training, report);
    }

    void compare_error(const ddp::Training& training, CaseReport& report) const {
        std::string got = "none";
        std::string_view begins;
        if (training.refusal) {
            begins = message(training.refusal->reason);
            got = "iteration " + std::to_string(training.refusal->iteration) +
                  " RuntimeError: " + std::string(begins);
        }
        std::string recorded = "none";
        if (const auto error = file_.find("error")) {
            const std::string_view text = error->at("message").string();
            recorded = "iteration " + error->at("iteration").shown() + " " +
                       std::string(error->at("type").string()) + ": " +
                       std::string(text.starts_with(begins) && !begins.empty() ? begins : text);
        }
        report.compare("error", recorded, got);
    }

    /// What DDP's own logger said at the end.
    void compare_log(const ddp::Training& training, CaseReport& report) const {
        const auto logged = file_.find("logged");
        if (!logged) {
            return;
        }
        const bool rebuilt = !training.reported_buckets.empty() && !training.reported_buckets.back().empty();
        const std::map<std::string, std::int64_t, std::less<>> got{
            {"bucket_cap_bytes", ddp::bucket_cap(options_)},
            {"has_rebuilt_buckets", rebuilt ? 1 : 0},
            {"gradient_as_bucket_view", gradient_views_ ? 1 : 0},
            {"static_graph", options_.static_graph ? 1 : 0},
            {"find_unused_parameters", options_.find_unused_parameters ? 1 : 0},
            {"num_buckets_reduced", training.reported_reductions},
        };
        for (const json::Value value : logged->members()) {
            const auto found = got.find(value.key());
            report.compare("logged " + std::string(value.key()), value.shown(),
                           found == got.end() ? "(not known)" : std::to_string(found->second));
        }
    }

    json::Value file_;
    std::string name_;
    std::vector<std::string> names_;
    Rows rows_;
    std::vector<ddp::Parameter> parameters_;
    std::vector<ddp::ModuleBuffer> buffers_;
    ddp::Options options_;
    bool gradient_views_ = false;  // changes memory, not what is sent
    std::int64_t iterations_ = 0;
};

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    DdpRecording(recording, std::filesystem::path(path).filename().string()).replay(out);
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
