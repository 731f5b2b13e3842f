#include <algorithm>
#include <cmath>

#include "planner/estimates.hpp"

namespace fsdplan {
namespace {

// Passes over what is saved, as a measure of the work that matrix products do not do: norms, activations,
// residuals and rotations read and write about as much, forward and twice that backward.
constexpr double forward_passes = 3.0;
constexpr double backward_passes = 5.0;

// Host time of eager PyTorch per layer with parameters and of FSDP's hooks per unit, one micro-batch.
constexpr Estimate layer_host_ns{60'000, 30'000, 150'000};
constexpr Estimate unit_host_ns{300'000, 100'000, 600'000};

// Bytes that an optimizer step moves per byte of parameter: reads p, g, m, v and writes p, m, v when fused;
// foreach makes one pass for each operation.
double optimizer_traffic(const Optimizer& optimizer) {
    switch (optimizer.kind) {
        case Optimizer::Kind::adamw:
            return optimizer.implementation == Optimizer::Implementation::fused ? 7.0 : 16.0;
        case Optimizer::Kind::adam8bit:
            return 8.0;
        case Optimizer::Kind::sgd:
            return 3.0;
    }
    return 16.0;
}

/// Reads one end of an estimate, so that one timeline serves for all three.
using End = std::int64_t Estimate::*;

struct UnitTimes {
    std::int64_t forward_ns = 0;
    std::int64_t backward_ns = 0;
    std::int64_t gather_ns = 0;
    std::int64_t regather_ns = 0;
    std::int64_t reduce_ns = 0;
    std::int64_t all_reduce_ns = 0;
};

struct Work {
    std::vector<double> flops;      // matrix products of each row's forward
    std::vector<double> attention;  // products of queries with keys and of scores with values
};

Work work_of(const ModuleTree& tree, const ModelFacts& facts, const TrainingJob& job) {
    Work work{.flops = std::vector<double>(tree.size()), .attention = std::vector<double>(tree.size())};
    const auto tokens = static_cast<double>(job.tokens());
    const auto chosen = static_cast<double>(facts.experts_per_token);
    for (const Layer& layer : facts.shape.layers) {
        const auto numel = static_cast<double>(layer.numel);
        double share = 0.0;
        if (layer.kind == LayerKind::linear || layer.kind == LayerKind::fused_experts) {
            share = layer.experts > 1 ? std::min(1.0, chosen / static_cast<double>(layer.experts)) : 1.0;
        }
        work.flops[static_cast<std::size_t>(layer.row)] += 2.0 * tokens * numel * share;
    }
    for (const LinearGroup& group : facts.shape.groups) {
        if (group.attention) {
            // Half of the scores lie above the diagonal.
            const std::int32_t row = facts.shape.layers[group.members.front()].row;
            work.attention[static_cast<std::size_t>(row)] +=
                2.0 * tokens * static_cast<double>(job.sequence) * static_cast<double>(group.inner);
        }
    }
    return work;
}

/// Rows of a unit less those of units inside it.
template <typename Each>
void for_own_rows(const StepLayout& layout, std::size_t unit, Each each) {
    std::int32_t row = layout.units[unit].begin;
    for (std::size_t inner = unit + 1; row < layout.units[unit].end; ++inner) {
        const bool more = inner < layout.units.size() && layout.units[inner].begin < layout.units[unit].end;
        const std::int32_t until = more ? std::max(row, layout.units[inner].begin) : layout.units[unit].end;
        for (; row < until; ++row) {
            each(row);
        }
        row = more ? std::max(row, layout.units[inner].end) : row;
    }
}

class Timeline {
public:
    Timeline(const StepLayout& layout, const TrainingJob& job, std::vector<UnitTimes> times)
        : layout_(layout), job_(job), times_(std::move(times)) {}

    /// One micro-batch: forward, backward, and the reductions when it is the last one (or every one reduces).
    std::int64_t micro_batch(bool reduces, bool gathers) {
        compute_ = 0;
        network_ = 0;
        pass_forward(gathers);
        pass_backward(reduces);
        return std::max({compute_, network_, replicas_});
    }

private:
    bool frees(std::size_t i) const { return layout_.units[i].frees_after_forward; }

    void pass_forward(bool gathers) {
        std::int64_t previous_start = 0;
        for (std::size_t i = 0; i < times_.size(); ++i) {
            const bool needed = gathers || frees(i);
            // The host runs ahead: a gather starts while the unit before it computes.
            network_ = std::max(network_, previous_start) + (needed ? times_[i].gather_ns : 0);
            previous_start = std::max(compute_, needed && times_[i].gather_ns > 0 ? network_ : compute_);
            compute_ = previous_start + times_[i].forward_ns;
        }
    }

    /// Gathers what a unit needs in backward, no earlier than `issued`; returns when it is there.
    std::int64_t regather(std::size_t i, std::int64_t issued) {
        if (!frees(i) || times_[i].regather_ns == 0) {
            return issued;
        }
        network_ = std::max(network_, issued) + times_[i].regather_ns;
        return network_;
    }

    void pass_backward(bool reduces) {
        using enum BackwardPrefetch;
        replicas_ = 0;
        const std::size_t count = times_.size();
        std::int64_t ready = regather(count - 1, compute_);
        for (std::size_t i = count; i-- > 0;) {
            const UnitTimes& unit = times_[i];
            const std::int64_t start = std::max(compute_, ready);
            // A prefetch enters the queue in front of this unit's reduction, or right behind its backward.
            std::int64_t next = i > 0 && job_.backward_prefetch == pre ? regather(i - 1, start) : 0;
            compute_ = start + unit.backward_ns;
            if (i > 0 && job_.backward_prefetch == post) {
                next = regather(i - 1, compute_);
            }
            if (reduces && unit.reduce_ns > 0) {
                network_ = std::max(network_, compute_) + unit.reduce_ns;
            }
            if (reduces && unit.all_reduce_ns > 0) {
                replicas_ = std::max({replicas_, network_, compute_}) + unit.all_reduce_ns;
            }
            if (i > 0 && job_.backward_prefetch == none) {
                next = regather(i - 1, compute_);
            }
            ready = next;
        }
    }

    const StepLayout& layout_;
    const TrainingJob& job_;
    std::vector<UnitTimes> times_;
    std::int64_t compute_ = 0;
    std::int64_t network_ = 0;
    std::int64_t replicas_ = 0;
};

class StepEstimate {
public:
    StepEstimate(const ModuleTree& tree, const ModelFacts& facts, const Activations& activations,
                 const StepLayout& layout, const TrainingJob& job, const Cluster& cluster)
        : facts_(facts), layout_(layout), job_(job), cluster_(cluster) {
        const Work work = work_of(tree, facts, job);
        forward_.resize(layout.units.size());
        backward_.resize(layout.units.size());
        for (std::size_t i = 0; i < layout.units.size(); ++i) {
            double flops = 0.0;
            double attention = 0.0;
            double saved = 0.0;
            for_own_rows(layout, i, [&](std::int32_t row) {
                flops += work.flops[static_cast<std::size_t>(row)];
                attention += work.attention[static_cast<std::size_t>(row)];
                saved += static_cast<double>(activations.kept.between(row, row + 1).value);
            });
            const double again = recomputed_share(i, activations, saved);
            // A product's backward takes twice its forward, attention's 2.5 times.
            forward_[i] = product(flops) + attention_time(cluster.gpu, attention) +
                          memory_time(cluster.gpu, forward_passes * saved);
            backward_[i] = product((2.0 + again) * flops) +
                           attention_time(cluster.gpu, (2.5 + again) * attention) +
                           memory_time(cluster.gpu, (backward_passes + again * forward_passes) * saved);
        }
    }

    StepTime estimate() const {
        const StepTime value = at(&Estimate::value);
        const StepTime low = at(&Estimate::low);
        const StepTime high = at(&Estimate::high);
        return {.step_ns = {value.step_ns.value, std::min(low.step_ns.value, value.step_ns.value),
                            std::max(high.step_ns.value, value.step_ns.value)},
                .exposed_ns = {value.exposed_ns.value, std::min(low.exposed_ns.value, value.exposed_ns.value),
                               std::max(high.exposed_ns.value, value.exposed_ns.value)}};
    }

private:
    Estimate product(double flops) const {
        return matmul_time(cluster_.gpu, flops, job_.param_dtype.value_or(DType::float32));
    }

    /// How much of a unit's forward is done a second time in backward; `saved` then grows to what it was.
    double recomputed_share(std::size_t unit, const Activations& activations, double& saved) const {
        std::int64_t again = 0;
        for (const Activations::Region& region : activations.recomputed) {
            const bool inside =
                region.begin >= layout_.units[unit].begin && region.end <= layout_.units[unit].end;
            const bool around =
                region.begin <= layout_.units[unit].begin && region.end >= layout_.units[unit].end;
            if (around) {
                again += region.bytes.value * (layout_.units[unit].end - layout_.units[unit].begin) /
                         (region.end - region.begin);
            } else if (inside && is_own(unit, region)) {
                again += region.bytes.value;
            }
        }
        saved += static_cast<double>(again);
        if (again == 0) {
            return 0.0;
        }
        return job_.activation_checkpointing.mode == ActivationCheckpointing::Mode::selective
                   ? 0.5
                   : static_cast<double>(again) / std::max(1.0, saved);
    }

    /// Not inside one of the units that this unit encloses.
    bool is_own(std::size_t unit, const Activations::Region& region) const {
        for (std::size_t i = unit + 1;
             i < layout_.units.size() && layout_.units[i].begin < layout_.units[unit].end; ++i) {
            if (layout_.units[i].begin <= region.begin && layout_.units[i].end >= region.end) {
                return false;
            }
        }
        return true;
    }

    std::int64_t time_of(const std::optional<Collective>& call, End end) const {
        if (!call) {
            return 0;
        }
        const Placement group = place(call->group, job_.mesh, cluster_, call->ranks);
        return collective_time(cluster_, call->kind, call->full_size(), group).ns.*end;
    }

    StepTime at(End end) const {
        std::vector<UnitTimes> times(layout_.units.size());
        std::int64_t compute = 0;
        std::int64_t working_units = 0;
        for (std::size_t i = 0; i < times.size(); ++i) {
            const UnitLayout& unit = layout_.units[i];
            times[i] = {.forward_ns = forward_[i].*end,
                        .backward_ns = backward_[i].*end,
                        .gather_ns = time_of(unit.gather, end),
                        .regather_ns = time_of(unit.regather, end),
                        .reduce_ns = time_of(unit.reduce, end),
                        .all_reduce_ns = time_of(unit.all_reduce, end)};
            compute += times[i].forward_ns + times[i].backward_ns;
            working_units += unit.numel > 0 ? 1 : 0;
        }
        const auto layers = static_cast<std::int64_t>(facts_.shape.layers.size());
        const std::int64_t host = layers * (layer_host_ns.*end) + working_units * (unit_host_ns.*end);
        Timeline timeline(layout_, job_, times);
        // Without gradient synchronisation, strategies that keep parameters gather them in the first
        // micro-batch only; gradients are reduced in the last one.
        const std::int64_t count = job_.accumulate;
        std::int64_t total = 0;
        const auto add = [&](std::int64_t times_run, bool first, bool last) {
            if (times_run > 0) {
                total += times_run *
                         std::max(host, timeline.micro_batch(last || !job_.no_sync, first || !job_.no_sync));
            }
        };
        add(1, true, count == 1);
        add(count - 2, false, false);
        add(count > 1 ? 1 : 0, false, true);
        total += bucketed(times, end);
        const std::int64_t busy = std::max(compute, host) * job_.accumulate;
        const auto step = static_cast<double>(layout_.owned_bytes) * optimizer_traffic(job_.optimizer);
        const std::int64_t optimizer = memory_time(cluster_.gpu, step).*end;
        return {.step_ns = exactly(total + optimizer),
                .exposed_ns = exactly(std::max<std::int64_t>(0, total - busy))};
    }

    /// DDP's buckets are reduced behind backward: what does not fit there, and the last one, is waited for.
    std::int64_t bucketed(const std::vector<UnitTimes>& times, End end) const {
        if (layout_.reduce_bucket_bytes == 0) {
            return 0;
        }
        std::int64_t all = 0;
        std::int64_t largest = 0;
        for (const Collective& call : layout_.collectives) {
            const std::int64_t one = time_of(call, end);
            all += one * call.count;
            largest = std::max(largest, one);
        }
        const std::int64_t reductions = job_.no_sync ? 1 : job_.accumulate;
        const std::int64_t each = all / reductions;
        return reductions * std::max(std::min(each, largest), each - times.front().backward_ns);
    }

    const ModelFacts& facts_;
    const StepLayout& layout_;
    const TrainingJob& job_;
    const Cluster& cluster_;
    std::vector<Estimate> forward_;
    std::vector<Estimate> backward_;
};

}  // namespace

StepTime estimate_step(const ModuleTree& tree, const ModelFacts& facts, const Activations& activations,
                       const StepLayout& layout, const TrainingJob& job, const Cluster& cluster) {
    return StepEstimate(tree, facts, activations, layout, job, cluster).estimate();
}

}  // namespace fsdplan
