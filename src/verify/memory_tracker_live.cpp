#include "verify/memory_tracker_live.hpp"

#include <numeric>

namespace fsdplan {
namespace {

constexpr std::array<std::string_view, tracker_category_count> names{
    "Sharded Param", "Unsharded Param", "Buffer",         "Sharded Grad", "Unsharded Grad", "Activation",
    "Temp",          "All Gather",      "Reduce Scatter", "OptState",     "Inputs"};

class Tracker {
public:
    Tracker(const Schedule& schedule, const TrackerHooks& hooks)
        : schedule_(schedule),
          hooks_(hooks),
          counted_as_(schedule.buffers.size(), TrackerCategory::activation),
          live_(schedule.buffers.size(), 0) {}

    std::vector<TrackedIteration> run() {
        std::vector<TrackedIteration> out;
        for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
            if (out.size() < schedule_.iteration_begin.size() &&
                static_cast<std::int64_t>(i) == schedule_.iteration_begin[out.size()]) {
                out.push_back({.peak = now_, .after_backward = {}});
            }
            take(schedule_.ops[i], out.empty() ? nullptr : &out.back());
        }
        return out;
    }

private:
    void take(const Op& op, TrackedIteration* iteration) {
        switch (op.kind) {
            case OpKind::allocate:
                allocate(op);
                if (iteration != nullptr && now_.total() > iteration->peak.total()) {
                    iteration->peak = now_;
                }
                break;
            case OpKind::free:
                add(op.target, -1);
                break;
            case OpKind::relabel:
                if (static_cast<Category>(op.detail) == Category::gradient_shard) {
                    call(op.target, TrackerCategory::sharded_grad);
                }
                break;
            case OpKind::collective:
                call_buffer_of(op);
                break;
            case OpKind::mark:
                pass(op, iteration);
                break;
            default:
                break;
        }
    }

    void pass(const Op& op, TrackedIteration* iteration) {
        switch (static_cast<Mark>(op.detail)) {
            case Mark::copy_out:
                call_all(op.unit, Category::unsharded, TrackerCategory::unsharded_param);
                break;
            case Mark::post_backward:
                call_all(op.unit, Category::gradient, TrackerCategory::unsharded_grad);
                break;
            case Mark::backward_end:
                if (iteration != nullptr) {
                    iteration->after_backward = now_;
                }
                break;
            default:
                break;
        }
    }

    void allocate(const Op& op) {
        const std::size_t b = at(op.target);
        counted_as_[b] = category_of(schedule_.buffers[b], op.pass);
        add(op.target, 1);
    }

    /// As what an operator's results count before anybody says what they are.
    TrackerCategory category_of(const Buffer& buffer, Pass pass) const {
        switch (buffer.category) {
            case Category::shard:
                return TrackerCategory::sharded_param;
            case Category::module_buffer:
                return TrackerCategory::buffer;
            case Category::input:
                return TrackerCategory::inputs;
            case Category::optimizer:
            case Category::optimizer_temporary:
                return TrackerCategory::optimizer_state;
            case Category::unsharded:
                // In forward the copy-out has views of it, which count as operators' results until the unit's
                // hook tells better; afterwards it is known.
                return pass == Pass::forward ? TrackerCategory::activation : TrackerCategory::unsharded_param;
            default:
                break;
        }
        const bool in_forward = pass == Pass::forward || (pass == Pass::recompute && hooks_.recompute_units);
        return in_forward ? TrackerCategory::activation : TrackerCategory::temp;
    }

    void call_buffer_of(const Op& op) {
        const CollectiveKind kind = schedule_.collectives[at(op.target)].kind;
        const bool unseen =
            op.pass == Pass::backward && op.prefetched != 0 && hooks_.explicit_backward_prefetch;
        if (kind == CollectiveKind::all_gather && !unseen) {
            call_all(op.unit, Category::gather_buffer, TrackerCategory::all_gather);
        } else if (kind == CollectiveKind::reduce_scatter) {
            call_all(op.unit, Category::reduce_input, TrackerCategory::reduce_scatter);
        }
    }

    void call_all(std::int32_t unit, Category category, TrackerCategory as) {
        for (std::size_t b = 0; b < live_.size(); ++b) {
            const Buffer& buffer = schedule_.buffers[b];
            if (live_[b] != 0 && buffer.unit == unit && buffer.category == category) {
                call(static_cast<std::int32_t>(b), as);
            }
        }
    }

    void call(std::int32_t buffer, TrackerCategory as) {
        add(buffer, -1);
        counted_as_[at(buffer)] = as;
        add(buffer, 1);
    }

    void add(std::int32_t buffer, std::int64_t sign) {
        const std::size_t b = at(buffer);
        now_.bytes[static_cast<std::size_t>(counted_as_[b])] += sign * schedule_.buffers[b].bytes;
        live_[b] = sign > 0 ? 1 : 0;
    }

    static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

    const Schedule& schedule_;
    TrackerHooks hooks_;
    std::vector<TrackerCategory> counted_as_;  // by buffer
    std::vector<char> live_;
    TrackerSnapshot now_;
};

}  // namespace

std::string_view name(TrackerCategory category) {
    return names[static_cast<std::size_t>(category)];
}

std::int64_t TrackerSnapshot::total() const {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::vector<TrackedIteration> tracked_iterations(const Schedule& schedule, const TrackerHooks& hooks) {
    return Tracker(schedule, hooks).run();
}

}  // namespace fsdplan
