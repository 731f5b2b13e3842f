#include "verify/ddp_case.hpp"

#include <algorithm>
#include <array>

#include "verify/traffic.hpp"
#include "verify/words.hpp"

// Two things cannot be derived from a recording and are taken from it: the order in which the gradients of
// the first backward became ready (autograd's, all later ones must repeat it), and the number of sizes and
// strides that describe the parameters (shapes are not recorded). That a gradient is sparse shows in the
// first buckets only, where an otherwise unlimited bucket holds it alone.
namespace fsdplan {
namespace {

/// Sizes are given in MiB and may be fractions.
std::int64_t cap_bytes(const json::Value& mib) {
    const double bytes = mib.number() * (1 << 20);
    if (!(bytes >= 0 && bytes <= static_cast<double>(largest_total))) {
        mib.fail("a size in MiB");
    }
    return static_cast<std::int64_t>(bytes);
}

class Reader {
public:
    explicit Reader(const json::Value& recording) : recording_(recording) {}

    DdpCase read() {
        out_.out_of_reach = out_of_reach();
        if (out_.out_of_reach.empty()) {
            read_model();
            read_options();
            mark_sparse();
        }
        return std::move(out_);
    }

private:
    /// Why this case cannot be replayed, or "".
    std::string out_of_reach() const {
        if (!recording_.find("parameters")) {
            return "the run was refused before anything of the model was recorded";
        }
        if (const auto settings = recording_.at("case").find("ddp")) {
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
        if (const auto hook = recording_.at("case").find("hook")) {
            constexpr std::array known{"fp16", "bf16", "allreduce"};
            if (std::ranges::find(known, hook->string()) == known.end()) {
                return "no rule is known for the communication hook " + std::string(hook->string());
            }
        }
        return "";
    }

    void read_model() {
        std::vector<std::string> ignored;
        if (const auto names = recording_.at("case").find("ignore")) {
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
        for (const json::Value row : recording_.at("parameters").elements()) {
            const json::Value name = row.at("name");
            out_.table.add(name);
            out_.parameters.push_back({.dtype = recorded_dtype(row.at("dt")),
                                       .numel = numel_of(row),
                                       .trainable = setting(row, "requires_grad", true),
                                       .ignored = is_ignored(name.string())});
        }
        if (const auto buffers = recording_.find("buffers")) {
            for (const json::Value row : buffers->elements()) {
                if (!is_ignored(row.at("name").string())) {
                    out_.buffers.push_back({.dtype = recorded_dtype(row.at("dt")), .numel = numel_of(row)});
                }
            }
        }
    }

    void read_options() {
        ddp::Options& options = out_.options;
        const json::Value settings = recording_.at("case");
        options.ranks = settings.at("world").integer(1, 1 << 24);
        out_.iterations = settings.at("iters").integer(1, 1000);
        if (const auto accumulate = settings.find("accum")) {
            options.accumulate = accumulate->integer(1, 1000);
        }
        if (const auto hook = settings.find("hook"); hook && hook->string() != "allreduce") {
            options.hook_dtype = dtype_from_name(hook->string());
        }
        if (const auto arguments = settings.find("ddp")) {
            if (const auto cap = arguments->find("bucket_cap_mb")) {
                options.bucket_cap_bytes = cap_bytes(*cap);
            }
            if (const auto list = arguments->find("bucket_cap_mb_list")) {
                for (const json::Value cap : list->elements()) {
                    options.bucket_cap_list.push_back(cap_bytes(cap));
                }
            }
            options.find_unused_parameters = setting(*arguments, "find_unused_parameters", false);
            options.static_graph = setting(*arguments, "static_graph", false);
            options.broadcast_buffers = setting(*arguments, "broadcast_buffers", true);
            options.init_sync = setting(*arguments, "init_sync", true);
            out_.gradient_views = setting(*arguments, "gradient_as_bucket_view", false);
        }
        // Two numbers for every dimension of every reduced parameter.
        for (const json::Value row : recording_.at("construction").elements()) {
            if (row.at("e").string() == "broadcast" && row.at("dt").string() == "i64") {
                options.shape_numbers = row.at("n").integer(0, largest_total);
                break;
            }
        }
    }

    void mark_sparse() {
        if (own_buckets(out_) == recorded_buckets(recording_)) {
            return;
        }
        const std::int64_t least = std::ranges::min(ddp::initial_limits(out_.options));
        for (const json::Value bucket : recording_.at("initial_buckets").at("buckets").elements()) {
            for (const json::Value name : bucket.elements()) {
                ddp::Parameter& parameter =
                    out_.parameters[static_cast<std::size_t>(out_.table.row_of(name))];
                parameter.sparse =
                    bucket.size() == 1 && bytes_of(parameter.numel, parameter.dtype).count < least;
            }
        }
    }

    json::Value recording_;
    DdpCase out_;
};

}  // namespace

DdpCase ddp_case(const json::Value& recording) {
    return Reader(recording).read();
}

std::vector<std::string> recorded_buckets(const json::Value& recording) {
    std::vector<std::string> lines;
    for (const json::Value bucket : recording.at("initial_buckets").at("buckets").elements()) {
        lines.push_back(joined(bucket.strings()));
    }
    return lines;
}

std::vector<std::string> own_buckets(const DdpCase& run) {
    std::vector<std::string> lines;
    for (const ddp::Bucket& bucket : ddp::initial_buckets(run.parameters, run.options)) {
        lines.push_back(run.table.names_of(bucket.parameters));
    }
    return lines;
}

std::vector<std::int32_t> ready_order(const std::vector<json::Value>& iterations, const DdpCase& run) {
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
                ready.push_back(run.table.row_of(name));
            }
        }
    }
    return ready;
}

}  // namespace fsdplan
