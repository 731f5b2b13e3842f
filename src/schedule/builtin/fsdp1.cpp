#include <algorithm>
#include <array>

#include "schedule/lowerings.hpp"
#include "schedule/units.hpp"

// FullyShardedDataParallel: one flat parameter a unit.
namespace fsdplan {
namespace {

struct Precision {
    DType stored{};
    DType compute{};
    DType reduce{};
};

std::optional<std::string_view> argument(const Unit& unit, std::string_view name) {
    for (const auto& [key, value] : unit.arguments) {
        if (key == name) {
            return value;
        }
    }
    return std::nullopt;
}

Precision precision_of(const ModuleTree& tree, const Unit& unit, const TrainingJob& job) {
    const DType stored = tree.tensors[at(unit.parameters.front())].dtype;
    if (argument(unit, "mixed_precision") == "null") {
        return {stored, stored, stored};
    }
    const DType compute = job.param_dtype.value_or(stored);
    return {stored, compute, job.reduce_dtype.value_or(compute)};
}

Strategy strategy_of(const Unit& unit, const TrainingJob& job) {
    // torch turns every strategy into NO_SHARD where there is nobody to shard with.
    if (job.mesh.shard == 1 && !is_hybrid(job.strategy)) {
        return Strategy::no_shard;
    }
    const std::optional<std::string_view> given = argument(unit, "sharding_strategy");
    return given && given->size() > 2 ? parse_strategy(given->substr(1, given->size() - 2)) : job.strategy;
}

/// With use_orig_params every original starts at a multiple of 16 bytes of the compute dtype.
std::int64_t alignment(std::int64_t compute_bytes) {
    return std::max<std::int64_t>(1, 16 / compute_bytes);
}

/// Elements of each rank's piece that belong to trainable original parameters, summed over the units.
class OwnedByRank {
public:
    explicit OwnedByRank(std::int64_t ranks)
        : whole_(static_cast<std::size_t>(ranks) + 1), part_(whole_.size()) {}

    void add(std::int64_t begin, std::int64_t end, std::int64_t shard) {
        const std::int64_t first = begin / shard;
        const std::int64_t last = (end - 1) / shard;
        if (first == last) {
            part(first) += end - begin;
            return;
        }
        part(first) += (first + 1) * shard - begin;
        part(last) += end - last * shard;
        // Every rank between them owns a whole shard: the differences are summed up at the end.
        whole_[static_cast<std::size_t>(first) + 1] += shard;
        whole_[static_cast<std::size_t>(last)] -= shard;
    }

    std::int64_t most() const {
        std::int64_t best = 0;
        std::int64_t running = 0;
        for (std::size_t rank = 0; rank + 1 < part_.size(); ++rank) {
            running += whole_[rank];
            best = std::max(best, running + part_[rank]);
        }
        return best;
    }

private:
    std::int64_t& part(std::int64_t rank) { return part_[static_cast<std::size_t>(rank)]; }

    std::vector<std::int64_t> whole_;
    std::vector<std::int64_t> part_;
};

struct Fsdp1 {
    const ModuleTree& tree;
    const WrapPlan& plan;
    const TrainingJob& job;
    StepLayout layout;
    std::vector<GradientPlaces> places;  // of the per-parameter gradients of each row

    const Unit& unit_of(const UnitLayout& row) const {
        return plan.units[static_cast<std::size_t>(row.unit)];
    }

    /// As in Unit::flat_numel, but for this job's mesh: the same units are compared under other strategies.
    std::int64_t flat_numel(const Unit& unit, std::int64_t compute_bytes) const {
        if (!job.use_orig_params) {
            return unit.numel;
        }
        const std::int64_t align = alignment(compute_bytes);
        std::int64_t numel = 0;
        for (const TensorIndex t : unit.parameters) {
            numel = round_up(numel, align) + tree.tensors[at(t)].numel;
        }
        return round_up(numel, job.mesh.shard);
    }

    void size_unit(UnitLayout& row) {
        const Unit& unit = unit_of(row);
        if (unit.parameters.empty() || unit.flat_numel == 0) {
            row.numel = 0;
            return;
        }
        const Precision precision = precision_of(tree, unit, job);
        const Strategy strategy = strategy_of(unit, job);
        const bool sharded = strategy != Strategy::no_shard;
        const std::int64_t ranks = job.mesh.shard;
        const std::int64_t flat = flat_numel(unit, element_bytes(precision.compute));
        const std::int64_t shard = sharded ? ceil_div(flat, ranks) : flat;
        const std::int64_t stored = element_bytes(precision.stored);
        const std::int64_t compute = element_bytes(precision.compute);
        const std::int64_t reduce = element_bytes(precision.reduce);
        const bool is_root = row.enclosing < 0;

        row.shard_bytes = shard * stored;
        row.frees_after_forward = sharded && fsdplan::frees_after_forward(strategy) && !is_root;
        if (sharded) {
            row.unsharded_bytes = shard * ranks * compute;
        } else if (precision.compute != precision.stored) {
            row.unsharded_bytes = flat * compute;  // the cast copy; the parameter itself is what is stored
        }
        if (sharded) {
            const std::int64_t forwards =
                fsdplan::frees_after_forward(strategy) || !job.no_sync ? job.accumulate : 1;
            row.gather = Collective{.kind = CollectiveKind::all_gather,
                                    .dtype = precision.compute,
                                    .input_numel = shard,
                                    .output_numel = shard * ranks,
                                    .ranks = ranks,
                                    .count = forwards};
            if (row.frees_after_forward) {
                row.regather = row.gather;
                row.regather->count = job.accumulate;
            }
        }
        if (unit.requires_grad) {
            size_reduction(row, precision, flat, shard, sharded);
            row.gradient_shard_bytes = shard * stored;
            row.gradient_bytes = flat * compute;
            row.reduce_buffer_bytes = (precision.reduce != precision.compute ? flat * reduce : 0) +
                                      (sharded && flat % ranks != 0 ? shard * ranks * reduce : 0) +
                                      (sharded ? shard * reduce : 0) +
                                      (sharded && precision.reduce != precision.stored ? shard * stored : 0);
        }
    }

    void size_reduction(UnitLayout& row, const Precision& precision, std::int64_t flat, std::int64_t shard,
                        bool sharded) const {
        const std::int64_t reductions = job.no_sync ? 1 : job.accumulate;
        const std::int64_t ranks = job.mesh.shard;
        if (!sharded) {
            row.reduce = Collective{.kind = CollectiveKind::all_reduce,
                                    .dtype = precision.reduce,
                                    .input_numel = flat,
                                    .output_numel = flat,
                                    .ranks = ranks,
                                    .count = reductions};
            return;
        }
        row.reduce = Collective{.kind = CollectiveKind::reduce_scatter,
                                .dtype = precision.reduce,
                                .input_numel = shard * ranks,
                                .output_numel = shard,
                                .ranks = ranks,
                                .count = reductions};
        if (is_hybrid(job.strategy)) {
            row.all_reduce = Collective{.kind = CollectiveKind::all_reduce,
                                        .group = RankGroup::replicate,
                                        .dtype = precision.reduce,
                                        .input_numel = shard,
                                        .output_numel = shard,
                                        .ranks = job.mesh.replicate,
                                        .count = reductions};
        }
    }

    /// The optimizer sees flat parameters, padding included, or with use_orig_params the pieces of the
    /// trainable originals that a rank owns.
    void size_states() {
        OwnedByRank owned(job.mesh.shard);
        OwnedByRank owned_stored(job.mesh.shard);
        for (const UnitLayout& row : layout.units) {
            const Unit& unit = unit_of(row);
            if (row.numel == 0 || !unit.requires_grad) {
                continue;
            }
            const Precision precision = precision_of(tree, unit, job);
            const std::int64_t stored = element_bytes(precision.stored);
            const std::int64_t shard = row.shard_bytes / stored;
            if (!job.use_orig_params) {
                layout.owned_numel += shard;
                layout.owned_bytes += row.shard_bytes;
                layout.largest_owned_bytes = std::max(layout.largest_owned_bytes, row.shard_bytes);
                continue;
            }
            const std::int64_t align = alignment(element_bytes(precision.compute));
            std::int64_t offset = 0;
            for (const TensorIndex t : unit.parameters) {
                const Tensor& tensor = tree.tensors[at(t)];
                offset = round_up(offset, align);
                if (tensor.requires_grad && tensor.numel > 0) {
                    owned.add(offset, offset + tensor.numel, shard);
                    owned_stored.add(offset * stored, (offset + tensor.numel) * stored, shard * stored);
                    layout.largest_owned_bytes =
                        std::max(layout.largest_owned_bytes, std::min(tensor.numel, shard) * stored);
                }
                offset += tensor.numel;
            }
        }
        layout.owned_numel += owned.most();
        layout.owned_bytes += owned_stored.most();
    }

    /// A gather takes new memory while the device still works with what the host has freed already; the rate
    /// limiter lets two units wait so.
    void size_run_ahead() {
        std::int64_t largest = 0;
        std::int64_t all = 0;
        for (const UnitLayout& row : layout.units) {
            const std::int64_t bytes = row.frees_after_forward ? row.unsharded_bytes : 0;
            largest = std::max(largest, bytes);
            all += bytes;
        }
        layout.run_ahead_bytes = job.limit_all_gathers ? std::min(all, 2 * largest) : all;
    }

    void place_gradients() {
        const std::vector<std::int32_t> last = last_rows(tree);
        places.resize(layout.units.size());
        for (std::size_t i = 0; i < layout.units.size(); ++i) {
            const UnitLayout& row = layout.units[i];
            const Unit& unit = unit_of(row);
            if (row.gradient_bytes == 0) {
                continue;
            }
            // Frozen members too: they are views of a flat parameter that requires grad.
            const std::int64_t compute = element_bytes(precision_of(tree, unit, job).compute);
            for (const TensorIndex t : unit.parameters) {
                places[i].add(last[at(t)], tree.tensors[at(t)].numel * compute);
            }
            places[i].sort();
        }
    }

    void add_moments() {
        const std::vector<UnitLayout>& units = layout.units;
        const std::vector<std::int32_t> targets = backward_targets(units);
        const RowSums unsharded(units, &UnitLayout::unsharded_bytes);
        const RowSums gradients(units, &UnitLayout::gradient_bytes);
        const RowSums shards(units, &UnitLayout::gradient_shard_bytes);
        const bool accumulates = job.accumulate > 1;
        const bool keeps_gradients = accumulates && job.no_sync;  // unsharded, between micro-batches
        const bool keeps_shards = accumulates && !job.no_sync;    // sharded, from the second one on
        std::vector<std::int64_t> kept(units.size() + 1,
                                       0);  // unsharded bytes of units that stay, up to a row
        for (std::size_t i = 0; i < units.size(); ++i) {
            kept[i + 1] = kept[i] + (units[i].frees_after_forward ? 0 : units[i].unsharded_bytes);
        }
        const auto bytes = [&](std::int32_t row) {
            return units[static_cast<std::size_t>(row)].unsharded_bytes;
        };
        const auto frees = [&](std::int32_t row) {
            return units[static_cast<std::size_t>(row)].frees_after_forward;
        };
        // Unsharded while `row` is at work: what stays anyway, what lies around it, and itself.
        const auto at_work = [&](std::int32_t row) {
            const std::int64_t stays =
                keeps_gradients ? kept.back() : kept[static_cast<std::size_t>(row) + 1];
            return stays + sum_around(units, row, [&](std::int32_t e) { return frees(e) ? bytes(e) : 0; }) +
                   (frees(row) ? bytes(row) : 0);
        };
        const std::int64_t kept_gradients = keeps_gradients ? gradients.all() : 0;
        const std::int64_t kept_shards = keeps_shards ? shards.all() : 0;

        for (std::size_t i = 0; i < units.size(); ++i) {
            if (units[i].numel == 0) {
                continue;
            }
            const auto row = static_cast<std::int32_t>(i);
            const bool next = job.forward_prefetch && i + 1 < units.size() && frees(row + 1);
            layout.moments.push_back({.phase = Phase::forward,
                                      .row = row,
                                      .unsharded_bytes = at_work(row) + (next ? bytes(row + 1) : 0),
                                      .gradient_bytes = kept_gradients,
                                      .gradient_shard_bytes = kept_shards});
        }
        layout.moments.push_back({.phase = Phase::loss,
                                  .unsharded_bytes = kept.back(),
                                  .gradient_bytes = kept_gradients,
                                  .gradient_shard_bytes = kept_shards});
        for (std::size_t i = units.size(); i-- > 0;) {
            const UnitLayout& unit = units[i];
            if (unit.numel == 0) {
                continue;
            }
            const auto row = static_cast<std::int32_t>(i);
            const std::int32_t target = targets[i];
            const std::int64_t prefetched = target >= 0 && frees(target) ? bytes(target) : 0;
            const bool early = job.backward_prefetch == BackwardPrefetch::pre;
            const std::int64_t around = sum_around(units, row, [&](std::int32_t e) {
                return places[static_cast<std::size_t>(e)].after(unit.end);
            });
            const std::int64_t done = keeps_shards ? shards.all() : shards.from(row + 1);
            const std::int64_t done_at_start =
                keeps_shards ? shards.all() : shards.from(first_behind(units, row));
            layout.moments.push_back({.phase = Phase::backward,
                                      .row = row,
                                      .unsharded_bytes = at_work(row) + (early ? prefetched : 0),
                                      .gradient_bytes = kept_gradients + around,
                                      .gradient_shard_bytes = done_at_start});
            // The flat gradient is concatenated from those of the parameters: both exist for a moment. With
            // use_orig_params or not, autograd splits and joins views of the flat parameter.
            layout.moments.push_back({.phase = Phase::gradient,
                                      .row = row,
                                      .unsharded_bytes = at_work(row) + (early ? prefetched : 0),
                                      .gradient_bytes = kept_gradients + around + 2 * unit.gradient_bytes,
                                      .gradient_shard_bytes = done});
            const std::int64_t waiting = keeps_gradients ? gradients.up_to(row) : unit.gradient_bytes;
            const bool stays = keeps_gradients && !unit.frees_after_forward;
            layout.moments.push_back(
                {.phase = Phase::reduce,
                 .row = row,
                 .unsharded_bytes = at_work(row) - (stays ? 0 : unit.unsharded_bytes) +
                                    (job.backward_prefetch == BackwardPrefetch::none ? 0 : prefetched),
                 .gradient_bytes = waiting + around,
                 .buffer_bytes = unit.reduce_buffer_bytes,
                 .gradient_shard_bytes = done});
        }
        layout.moments.push_back({.phase = Phase::step, .gradient_shard_bytes = shards.all()});
    }
};

StepLayout lay_out_fsdp1(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job) {
    Fsdp1 step{tree, plan, job, {}, {}};
    step.layout.units = rows_of(tree, plan);
    for (UnitLayout& row : step.layout.units) {
        step.size_unit(row);
    }
    step.size_states();
    step.size_run_ahead();
    step.place_gradients();
    step.add_moments();
    add_up(step.layout);
    return std::move(step.layout);
}

constexpr std::array strategies{Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard,
                                Strategy::hybrid_shard, Strategy::hybrid_shard_zero2};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo fsdp1;
constinit const RuntimeInfo fsdp1{
    .name = "fsdp1",
    .help = "torch.distributed.fsdp.FullyShardedDataParallel",
    .wraps_by_policy = true,
    .has_units = true,
    .strategies = strategies,
    .layout = lay_out_fsdp1,
    .lower = lower_fsdp1,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
