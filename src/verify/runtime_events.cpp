#include "verify/runtime_events.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "verify/traffic.hpp"

namespace fsdplan {
namespace {

constexpr std::array<std::string_view, 16> recorded_marks{
    "microbatch", "fwd_begin",    "fwd_end",    "copy_out",     "reshard",         "reshard_pf",
    "loss",       "pre_bwd",      "post_bwd",   "post_bwd_end", "post_bwd_frozen", "final_begin",
    "final_end",  "backward_end", "optim_step", "zero_grad"};

std::string_view recorded_group(RankGroup group) {
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

/// The fields of an event in one fixed order.
struct Fields {
    std::string kind;
    std::optional<std::string> unit;
    std::string phase;
    std::string rest;

    std::string text() const { return kind + (unit ? " \"" + *unit + "\"" : "") + " " + phase + rest; }
};

class Replay {
public:
    Replay(const Schedule& schedule, const ModuleTree& tree)
        : schedule_(schedule),
          tree_(tree),
          category_(schedule.buffers.size()),
          by_category_(category_count, 0),
          offload_(std::ranges::any_of(
              schedule.buffers, [](const Buffer& b) { return b.on_host && b.category == Category::shard; })) {
    }

    std::vector<RuntimeIteration> run() {
        const auto setup = static_cast<std::size_t>(schedule_.iteration_begin.front());
        RuntimeIteration ignored;
        play(std::span(schedule_.ops).first(setup), ignored);
        std::vector<RuntimeIteration> iterations(schedule_.iteration_begin.size());
        for (std::size_t i = 0; i < iterations.size(); ++i) {
            computed_ = false;
            iterations[i].start_bytes = peak_ = live_;
            play(schedule_.iteration(i), iterations[i]);
            iterations[i].end_bytes = live_;
            iterations[i].peak_bytes = peak_;
            iterations[i].end_by_category = by_category_;
        }
        return iterations;
    }

private:
    void play(std::span<const Op> ops, RuntimeIteration& out) {
        for (const Op& op : ops) {
            const auto target = static_cast<std::size_t>(op.target);
            switch (op.kind) {
                case OpKind::compute:
                    computed_ = true;
                    break;
                case OpKind::allocate:
                    category_[target] = schedule_.buffers[target].category;
                    count(target, op.bytes);
                    break;
                case OpKind::free:
                    count(target, -op.bytes);
                    break;
                case OpKind::relabel:
                    count(target, -schedule_.buffers[target].bytes);
                    category_[target] = static_cast<Category>(op.detail);
                    count(target, schedule_.buffers[target].bytes);
                    break;
                case OpKind::collective:
                    add(out, collective(op));
                    break;
                case OpKind::mark:
                    add(out, mark(op));
                    // Backward begins with a gradient of the loss that autograd makes.
                    computed_ = static_cast<Mark>(op.detail) == Mark::loss;
                    break;
                default:
                    break;
            }
        }
    }

    // A recording's device is the host: what offloading copies to the device is there already.
    bool is_copy(std::size_t buffer) const {
        return offload_ && category_[buffer] == Category::shard && !schedule_.buffers[buffer].on_host;
    }

    void count(std::size_t buffer, std::int64_t bytes) {
        if (is_copy(buffer)) {
            return;
        }
        live_ += bytes;
        peak_ = std::max(peak_, live_);
        by_category_[static_cast<std::size_t>(category_[buffer])] += bytes;
    }

    void add(RuntimeIteration& out, const Fields& fields) {
        out.events.push_back({.text = fields.text(), .live_bytes = live_, .after_computation = computed_});
        computed_ = false;
    }

    Fields collective(const Op& op) {
        const CollectiveCall& call = schedule_.collectives[static_cast<std::size_t>(op.target)];
        Fields out{.kind = std::string(name(call.kind)), .phase = phase(op)};
        if (op.unit >= 0) {
            out.unit = schedule_.units[static_cast<std::size_t>(op.unit)];
        }
        out.rest = " " + recorded_name(call.dtype) + " " + std::to_string(call.input_numel) + " -> " +
                   std::to_string(call.output_numel) + " over " + std::to_string(call.ranks) + " " +
                   std::string(recorded_group(call.group));
        if (call.reduction != Reduction::none) {
            out.rest += " " + std::string(name(call.reduction));
        }
        out.rest += op.prefetched != 0 ? " prefetched" : "";
        return out;
    }

    Fields mark(const Op& op) {
        const auto what = static_cast<Mark>(op.detail);
        // A recompute that stops early never reaches the end of what it began.
        if (what == Mark::pre_backward || what == Mark::post_backward || what == Mark::post_backward_frozen ||
            what == Mark::final_begin || what == Mark::backward_end) {
            depth_ = 0;
        }
        if (what == Mark::forward_begin) {
            ++depth_;
        }
        Fields out{.kind = std::string(recorded_marks[op.detail]), .phase = phase(op)};
        if (what == Mark::forward_end) {
            --depth_;
        }
        if (what == Mark::forward_begin || what == Mark::forward_end) {
            out.unit = tree_.path(static_cast<ModuleIndex>(op.module));
        } else if (op.unit >= 0) {
            out.unit = schedule_.units[static_cast<std::size_t>(op.unit)];
        }
        if (what == Mark::microbatch || what == Mark::reshard || what == Mark::reshard_post_forward ||
            what == Mark::post_backward) {
            out.rest = " " + std::to_string(op.bytes);
        }
        return out;
    }

    std::string phase(const Op& op) const {
        switch (op.pass) {
            case Pass::forward:
                return "fwd";
            case Pass::backward:
            case Pass::recompute:
                return depth_ > 0 ? "re" : "bwd";
            case Pass::clip:
                return "clip";
            case Pass::optimizer:
                return "opt";
        }
        return "";
    }

    const Schedule& schedule_;
    const ModuleTree& tree_;
    std::vector<Category> category_;  // of each buffer now
    std::vector<std::int64_t> by_category_;
    bool offload_;
    std::int64_t live_ = 0;
    std::int64_t peak_ = 0;
    bool computed_ = false;
    int depth_ = 0;  // of forwards that have begun
};

}  // namespace

std::vector<RuntimeIteration> events_of(const Schedule& schedule, const ModuleTree& tree) {
    return Replay(schedule, tree).run();
}

std::string text_of(const json::Value& event) {
    Fields out{.kind = std::string(event.at("e").string()), .phase = std::string(event.at("p").string())};
    if (const auto unit = event.find("u")) {
        out.unit = std::string(unit->string());
    }
    if (const auto dtype = event.find("dt")) {
        out.rest = " " + std::string(dtype->string()) + " " + std::to_string(event.at("in").integer()) +
                   " -> " + std::to_string(event.at("out").integer()) + " over " +
                   std::to_string(event.at("g").integer()) + " " + std::string(event.at("grp").string());
        if (const auto op = event.find("op")) {
            out.rest += " " + std::string(op->string());
        }
        if (const auto prefetched = event.find("pf"); prefetched && prefetched->integer() != 0) {
            out.rest += " prefetched";
        }
        return out.text();
    }
    for (const std::string_view key : {"i", "free", "grad"}) {
        if (const auto number = event.find(key)) {
            out.rest += " " + std::to_string(number->integer());
        }
    }
    return out.text();
}

}  // namespace fsdplan
