#include "planner/search/bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fsdplan {
namespace {

/// Alive whatever the units are, but for padding.
bool is_padded(Category category) {
    return category == Category::shard || category == Category::gradient_shard ||
           category == Category::optimizer || category == Category::replicated;
}

/// Alive whatever the units are.
bool belongs_to_no_unit(Category category) {
    switch (category) {
        case Category::activation:
        case Category::logits:
        case Category::temporary:
        case Category::module_buffer:
        case Category::input:
        case Category::workspace:
            return true;
        default:
            return false;
    }
}

/// What is alive at one moment whatever the units are.
struct Alive {
    std::int64_t bytes = 0;
    std::int64_t padded_bytes = 0;

    std::int64_t at_least() const {
        constexpr std::int64_t most_padding = 100;  // one part in so many
        return bytes + padded_bytes - padded_bytes / most_padding;
    }
};

std::int64_t own_numel(const ModuleTree& tree, std::int32_t row, bool trainable_only) {
    std::int64_t numel = 0;
    for (const TensorIndex t : tree.parameters(static_cast<ModuleIndex>(row))) {
        numel += !trainable_only || tree.tensors[at(t)].requires_grad ? tree.tensors[at(t)].numel : 0;
    }
    return numel;
}

std::int64_t streamed_ns(const Gpu& gpu, std::int64_t bytes) {
    return memory_time(gpu, static_cast<double>(bytes), 0).value;
}

}  // namespace

void Decided::add(const Decided& other, std::int64_t times) {
    numel += other.numel * times;
    trainable_numel += other.trainable_numel * times;
    kept_numel += other.kept_numel * times;
    again_numel += other.again_numel * times;
    gather_ns += other.gather_ns * times;
    again_ns += other.again_ns * times;
    reduce_ns += other.reduce_ns * times;
}

std::int64_t StepBound::Curve::at_least(std::int64_t numel) const {
    const auto size = static_cast<double>(numel * bytes_per_element);
    const auto above = std::ranges::upper_bound(bytes, size);
    return above == bytes.begin() || bytes.empty()
               ? 0
               : least_ns[static_cast<std::size_t>(above - bytes.begin()) - 1];
}

std::int64_t StepBound::Curve::at_best_rate(std::int64_t numel) const {
    return static_cast<std::int64_t>(best_ns_per_byte * static_cast<double>(numel * bytes_per_element));
}

StepBound::StepBound(const Evaluation& about, const WrapPlan& reference, const TrainingJob& job) {
    TrainingJob keeping = job;
    if (!runtime(job.runtime).wraps_by_policy) {
        keeping.reshard_after_forward = 0;
    }
    const Played played = play_plan(about, reference, keeping);
    for (const Unit& unit : reference.units) {
        numel_ += unit.numel;
        for (const TensorIndex t : unit.parameters) {
            trainable_numel_ += about.tree.tensors[at(t)].requires_grad ? about.tree.tensors[at(t)].numel : 0;
        }
    }
    gathers_ = job.accumulate;
    reductions_ = job.no_sync ? 1 : job.accumulate;
    gathers_again_ = frees_after_forward(job.strategy) && job.reshard_after_forward != 0;
    const double speed = about.cluster.gpu.constants.overlap.value;
    // Kernels lose this of the time that they share with collectives; where they do not share it they wait.
    lost_share_ = 1.0 - speed;
    if (job.mesh.shard > 1) {
        const Placement all = place(RankGroup::shard, job.mesh, about.cluster, job.mesh.shard);
        gather_ = curve_of(about, played.schedule, CollectiveKind::all_gather, all);
        reduce_ = curve_of(about, played.schedule, CollectiveKind::reduce_scatter, all);
        again_ = gather_;
        if (const std::int64_t ranks = job.reshard_after_forward.value_or(1); ranks > 1) {
            again_in_same_group_ = false;
            left_divisor_ = ranks;
            again_ = curve_of(about, played.schedule, CollectiveKind::all_gather,
                              place(RankGroup::post_forward, job.mesh, about.cluster, ranks));
        }
    }
    read_work(about, played, keeping.reshard_after_forward == 0);
    read_ends(about, played);
    read_memory(about, played.schedule);
}

StepBound::Curve StepBound::curve_of(const Evaluation& about, const Schedule& schedule, CollectiveKind kind,
                                     const Placement& group) const {
    Curve out;
    for (const CollectiveCall& call : schedule.collectives) {
        if (call.kind == kind && call.group == RankGroup::shard) {
            const std::int64_t size = bytes_of(1, call.dtype).count;
            out.bytes_per_element = out.bytes_per_element == 0 ? size : std::min(out.bytes_per_element, size);
        }
    }
    if (out.bytes_per_element == 0) {
        return out;
    }
    // Twice what all parameters together could need, since flat parameters are padded.
    const double top = 2.0 * static_cast<double>(numel_ * out.bytes_per_element) + 1024.0;
    constexpr double step = 1.03;
    constexpr double between_steps = 0.998;  // a knot of a measured curve
    double size = 512.0;
    while (size < top) {
        out.bytes.push_back(size);
        out.least_ns.push_back(
            collective_time(about.cluster, kind, Bytes{static_cast<std::int64_t>(size)}, group).ns.value);
        size *= step;
    }
    out.best_ns_per_byte = std::numeric_limits<double>::max();
    for (std::size_t i = out.bytes.size(); i-- > 0;) {
        out.best_ns_per_byte = std::min(out.best_ns_per_byte,
                                        between_steps * static_cast<double>(out.least_ns[i]) / out.bytes[i]);
        if (i + 1 < out.bytes.size()) {
            out.least_ns[i] = std::min(out.least_ns[i], out.least_ns[i + 1]);
        }
    }
    return out;
}

void StepBound::read_work(const Evaluation& about, const Played& played, bool everything_kept) {
    const Gpu& gpu = about.cluster.gpu;
    const Schedule& schedule = played.schedule;
    std::int64_t copied = 0;
    std::int64_t copied_back = 0;
    for (auto i = static_cast<std::size_t>(schedule.iteration_begin.back()); i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        const bool around_the_step = op.pass == Pass::clip || op.pass == Pass::optimizer;
        if (!around_the_step && op.unit < 0) {
            host_ns_ += played.times.host_ns[i];
        }
        if (op.stream != Stream::compute) {
            continue;
        }
        if (op.kind == OpKind::compute && around_the_step) {
            // How many kernels there are hangs on the units.
            optimizer_ns_ += op.flops > 0 ? played.times.device_ns[i] : streamed_ns(gpu, op.bytes);
        } else if (op.kind == OpKind::compute) {
            kernels_ns_ += played.times.device_ns[i];
        } else if (op.kind == OpKind::copy && op.pass == Pass::forward) {
            copied += op.bytes;
        } else if (op.kind == OpKind::copy && op.pass == Pass::backward && everything_kept) {
            copied_back += op.bytes;
        }
    }
    kernels_ns_ += streamed_ns(gpu, 2 * copied_back);
    copy_ns_per_element_ = numel_ == 0 ? 0.0
                                       : static_cast<double>(streamed_ns(gpu, 2 * copied)) /
                                             static_cast<double>(numel_ * gathers_);
}

void StepBound::read_ends(const Evaluation& about, const Played& played) {
    const Schedule& schedule = played.schedule;
    for (auto i = static_cast<std::size_t>(schedule.iteration_begin.back()); i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        if (op.kind != OpKind::compute || op.module < 0) {
            continue;
        }
        if (op.pass == Pass::forward && first_gather_ns_ == 0) {
            first_gather_ns_ = gather_.at_least(own_numel(about.tree, op.module, false));
        } else if (op.pass == Pass::backward) {
            const std::int64_t numel = own_numel(about.tree, op.module, true);
            last_reduce_ns_ = numel > 0 ? reduce_.at_least(numel) : last_reduce_ns_;
        }
    }
}

// What is kept after forward is alive from the loss to the end of the head's backward at least.
void StepBound::read_memory(const Evaluation& about, const Schedule& schedule) {
    std::vector<Category> category(schedule.buffers.size());
    Alive now;
    bool at_loss = false;
    const auto count = [&](std::size_t buffer, std::int64_t bytes) {
        if (!schedule.buffers[buffer].on_host) {
            now.bytes += belongs_to_no_unit(category[buffer]) ? bytes : 0;
            now.padded_bytes += is_padded(category[buffer]) ? bytes : 0;
        }
    };
    for (const Op& op : schedule.ops) {
        const auto target = static_cast<std::size_t>(op.target);
        if (op.kind == OpKind::allocate) {
            category[target] = schedule.buffers[target].category;
            count(target, op.bytes);
        } else if (op.kind == OpKind::free) {
            count(target, -op.bytes);
        } else if (op.kind == OpKind::relabel) {
            count(target, -schedule.buffers[target].bytes);
            category[target] = static_cast<Category>(op.detail);
            count(target, schedule.buffers[target].bytes);
        } else if (op.kind == OpKind::mark && static_cast<Mark>(op.detail) == Mark::loss) {
            at_loss = true;
        } else if (op.kind == OpKind::compute && op.pass == Pass::backward && op.module >= 0 &&
                   own_numel(about.tree, op.module, false) > 0) {
            at_loss = false;
        }
        // A module computes with its own parameters in full.
        const bool computes = op.kind == OpKind::compute && op.module >= 0;
        const std::int64_t own =
            computes ? own_numel(about.tree, op.module, false) * gather_.bytes_per_element : 0;
        floor_bytes_ = std::max(floor_bytes_, now.at_least() + own);
        floor_at_loss_bytes_ =
            at_loss ? std::max(floor_at_loss_bytes_, now.at_least()) : floor_at_loss_bytes_;
    }
}

std::int64_t StepBound::step_ns(std::int64_t budget_bytes, const Decided& decided) const {
    const std::int64_t rest = std::max<std::int64_t>(0, numel_ - decided.numel);
    const std::int64_t rest_trainable = std::max<std::int64_t>(0, trainable_numel_ - decided.trainable_numel);
    // Frozen units whose input takes no gradient have no backward: only trainable ones surely come again.
    const std::int64_t room = std::max<std::int64_t>(0, budget_bytes - at_loss_bytes(decided));
    std::int64_t may_stay = room / std::max<std::int64_t>(1, gather_.bytes_per_element);
    if (left_divisor_ > 1) {  // staying takes the place of what would be left
        may_stay += may_stay / (left_divisor_ - 1) + 1;
    }
    const std::int64_t rest_again = gathers_again_ ? std::max<std::int64_t>(0, rest_trainable - may_stay) : 0;
    const std::int64_t again = gathers_ * (decided.again_ns + again_.at_best_rate(rest_again));
    const std::int64_t in_full = gathers_ * (decided.gather_ns + gather_.at_best_rate(rest)) +
                                 reductions_ * (decided.reduce_ns + reduce_.at_best_rate(rest_trainable));
    const std::int64_t collectives = again_in_same_group_ ? in_full + again : std::max(in_full, again);
    const auto copies = static_cast<std::int64_t>(
        copy_ns_per_element_ * static_cast<double>(gathers_) *
        static_cast<double>(decided.numel + rest + decided.again_numel + rest_again));
    const std::int64_t ends = first_gather_ns_ + last_reduce_ns_;
    const auto lost = static_cast<std::int64_t>(
        lost_share_ * static_cast<double>(std::max<std::int64_t>(0, collectives - ends)));
    return std::max(
        {host_ns_, collectives + optimizer_ns_, ends + kernels_ns_ + copies + lost + optimizer_ns_});
}

std::int64_t StepBound::floor_bytes(const Decided& decided) const {
    return std::max(floor_bytes_, at_loss_bytes(decided));
}

std::int64_t StepBound::at_loss_bytes(const Decided& decided) const {
    const std::int64_t left = left_divisor_ == 0 ? 0 : (numel_ - decided.kept_numel) / left_divisor_;
    return floor_at_loss_bytes_ + (decided.kept_numel + left) * gather_.bytes_per_element;
}

Decided StepBound::unit(std::int64_t numel, std::int64_t trainable_numel, bool kept) const {
    const std::int64_t once = gather_.at_least(numel);
    const bool again = gathers_again_ && !kept && trainable_numel > 0;
    return {.numel = numel,
            .trainable_numel = trainable_numel,
            .kept_numel = kept ? numel : 0,
            .again_numel = again ? numel : 0,
            .gather_ns = once,
            .again_ns = again ? again_.at_least(numel) : 0,
            .reduce_ns = reduce_.at_least(trainable_numel)};
}

}  // namespace fsdplan
