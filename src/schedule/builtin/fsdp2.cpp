#include <algorithm>
#include <array>

#include "schedule/lowerings.hpp"
#include "schedule/units.hpp"

// fully_shard: parameters are sharded by rows, one by one, and gathered a unit at a time.
namespace fsdplan {
namespace {

struct Fsdp2 {
    const ModuleTree& tree;
    const WrapPlan& plan;
    const TrainingJob& job;
    StepLayout layout;
    std::vector<GradientPlaces> places;
    std::int64_t post_forward_ranks = 0;  // reshard_after_forward = k with 1 < k < shard ranks

    /// What only this runtime holds, per row.
    struct Extra {
        std::int64_t post_forward_bytes = 0;   // the slice that stays between forward and backward
        std::int64_t reduce_output_bytes = 0;  // output of the reduce-scatter, and its copy as stored
    };
    std::vector<Extra> extra{};
    std::vector<std::int32_t> targets{};  // what each row prefetches in backward

    bool reshards(const UnitLayout& row) const {
        const bool is_root = row.enclosing < 0;
        if (!job.reshard_after_forward) {
            // The root is about to be needed again: torch keeps it unless told otherwise.
            return !is_root && fsdplan::frees_after_forward(job.strategy);
        }
        return *job.reshard_after_forward != 0;
    }

    DType compute_dtype(const Tensor& tensor) const { return job.param_dtype.value_or(tensor.dtype); }

    /// The dtype of the reduction: when it is not given that of the gradients or of the parameters as stored.
    DType reduce_dtype(DType compute, DType stored) const {
        const bool as_stored = torch_behaviour(job.torch).reduces_in_original_dtype;
        return job.reduce_dtype.value_or(as_stored ? stored : compute);
    }

    void size_unit(std::size_t index, const std::vector<std::int32_t>& last) {
        UnitLayout& row = layout.units[index];
        GradientPlaces& place = places[index];
        const Unit& unit = plan.units[static_cast<std::size_t>(row.unit)];
        const std::int64_t ranks = job.mesh.shard;
        std::optional<DType> gathered;  // one dtype for all members, else the unit travels as bytes
        std::optional<DType> reduced;
        bool one_dtype = true;
        std::int64_t gather_numel = 0;
        std::int64_t gather_bytes = 0;
        std::int64_t reduce_numel = 0;
        std::int64_t cast_bytes = 0;
        std::int64_t stored_gradient_bytes = 0;
        bool trainable_recast = false;
        for (const TensorIndex t : unit.parameters) {
            const Tensor& tensor = tree.tensors[at(t)];
            const std::int64_t padded = row_shard(tensor.shape, ranks, 0).padded_numel();
            const DType compute = compute_dtype(tensor);
            one_dtype = one_dtype && gathered.value_or(compute) == compute;
            gathered = compute;
            gather_numel += padded;
            gather_bytes += padded * element_bytes(compute);
            cast_bytes += compute != tensor.dtype ? padded * element_bytes(compute) : 0;
            row.shard_bytes += padded * element_bytes(tensor.dtype);
            if (!tensor.requires_grad) {
                continue;
            }
            reduced = reduce_dtype(compute, tensor.dtype);
            reduce_numel += padded;
            trainable_recast = trainable_recast || *reduced != tensor.dtype;
            stored_gradient_bytes += padded * element_bytes(tensor.dtype);
            const DType kept = accumulates_unreduced() ? *reduced : compute;
            row.gradient_bytes += tensor.numel * element_bytes(kept);
            place.add(last[at(t)], tensor.numel * element_bytes(kept));
            // Rank 0 owns the first rows of everything, so it owns the most.
            const std::int64_t owned = row_shard(tensor.shape, ranks, 0).owned_numel();
            layout.owned_numel += owned;
            layout.owned_bytes += owned * element_bytes(tensor.dtype);
            layout.largest_owned_bytes =
                std::max(layout.largest_owned_bytes, owned * element_bytes(tensor.dtype));
        }
        row.numel = gather_numel == 0 ? 0 : row.numel;
        if (gather_numel == 0) {
            return;
        }
        row.frees_after_forward = reshards(row);
        row.unsharded_bytes = gather_bytes * ranks;
        row.gather_buffer_bytes = gather_bytes * ranks + cast_bytes;
        row.gradient_shard_bytes = stored_gradient_bytes;
        if (post_forward_ranks > 0 && row.frees_after_forward) {
            extra[index].post_forward_bytes = row.unsharded_bytes / post_forward_ranks;
        }
        add_gathers(row, one_dtype ? *gathered : DType::uint8, one_dtype ? gather_numel : gather_bytes);
        if (reduced) {
            const std::int64_t reduce = element_bytes(*reduced);
            row.reduce_buffer_bytes = reduce_numel * ranks * reduce;
            extra[index].reduce_output_bytes =
                reduce_numel * reduce + (trainable_recast ? stored_gradient_bytes : 0);
            add_reductions(row, *reduced, reduce_numel);
        }
    }

    bool accumulates_unreduced() const { return job.accumulate > 1 && job.no_sync; }

    void add_gathers(UnitLayout& row, DType dtype, std::int64_t numel) const {
        const std::int64_t ranks = job.mesh.shard;
        if (ranks == 1) {
            return;  // copies, but no collective
        }
        row.gather = Collective{.kind = CollectiveKind::all_gather,
                                .dtype = dtype,
                                .input_numel = numel,
                                .output_numel = numel * ranks,
                                .ranks = ranks,
                                .count = job.accumulate};
        if (row.frees_after_forward) {
            row.regather = row.gather;
            if (post_forward_ranks > 0) {
                row.regather->group = RankGroup::post_forward;
                row.regather->ranks = post_forward_ranks;
                row.regather->input_numel = numel * ranks / post_forward_ranks;
            }
        }
    }

    void add_reductions(UnitLayout& row, DType dtype, std::int64_t numel) const {
        const std::int64_t reductions = job.no_sync ? 1 : job.accumulate;
        if (job.mesh.shard > 1) {
            row.reduce = Collective{.kind = CollectiveKind::reduce_scatter,
                                    .dtype = dtype,
                                    .input_numel = numel * job.mesh.shard,
                                    .output_numel = numel,
                                    .ranks = job.mesh.shard,
                                    .count = reductions};
        }
        if (is_hybrid(job.strategy) || job.mesh.replicate > 1) {
            row.all_reduce = Collective{.kind = CollectiveKind::all_reduce,
                                        .group = RankGroup::replicate,
                                        .dtype = dtype,
                                        .input_numel = numel,
                                        .output_numel = numel,
                                        .ranks = job.mesh.replicate,
                                        .count = reductions};
        }
    }

    /// Backward ends where the first trainable parameter is; the unit in front of it is prefetched for
    /// nothing.
    void drop_unreached() {
        const std::int32_t first = first_trainable_row(tree);
        std::vector<char> gathered(layout.units.size(), 0);
        for (std::size_t i = 0; i < layout.units.size(); ++i) {
            if (reached(layout.units[i], first)) {
                gathered[i] = 1;
                const std::int32_t target = targets[i];
                if (target >= 0) {
                    gathered[static_cast<std::size_t>(target)] = 1;
                }
            }
        }
        for (std::size_t i = 0; i < layout.units.size(); ++i) {
            if (gathered[i] == 0) {
                layout.units[i].regather.reset();
            }
        }
    }

    static bool reached(const UnitLayout& unit, std::int32_t first_trainable) {
        return first_trainable < unit.end;
    }

    void add_moments() {
        const std::vector<UnitLayout>& units = layout.units;
        const std::int32_t first_trainable = first_trainable_row(tree);
        const RowSums gradients(units, &UnitLayout::gradient_bytes);
        const RowSums shards(units, &UnitLayout::gradient_shard_bytes);
        const bool keeps_gradients = accumulates_unreduced();
        const bool keeps_shards = job.accumulate > 1 && !job.no_sync;
        const std::int64_t kept_gradients = keeps_gradients ? gradients.all() : 0;
        const std::int64_t kept_shards = keeps_shards ? shards.all() : 0;
        std::vector<std::int64_t> kept(units.size() + 1, 0);
        for (std::size_t i = 0; i < units.size(); ++i) {
            kept[i + 1] = kept[i] + (units[i].frees_after_forward ? extra[i].post_forward_bytes
                                                                  : units[i].unsharded_bytes);
        }
        const auto at_row = [&](std::int32_t row) -> const UnitLayout& {
            return units[static_cast<std::size_t>(row)];
        };
        const auto while_open = [&](std::int32_t row) {
            return at_row(row).frees_after_forward ? at_row(row).unsharded_bytes : 0;
        };
        const auto at_work = [&](std::int32_t row) {
            return kept[static_cast<std::size_t>(row) + 1] + sum_around(units, row, while_open) +
                   while_open(row);
        };

        std::int64_t previous_buffer = 0;
        for (std::size_t i = 0; i < units.size(); ++i) {
            if (units[i].numel == 0) {
                continue;
            }
            const auto row = static_cast<std::int32_t>(i);
            // At the switch the gather buffers of this unit and the one before it exist, then this unit's
            // buffer and its parameters.
            const std::int64_t own = units[i].unsharded_bytes;
            layout.moments.push_back(
                {.phase = Phase::forward,
                 .row = row,
                 .unsharded_bytes = previous_buffer > own ? at_work(row) - own : at_work(row),
                 .gradient_bytes = kept_gradients,
                 .buffer_bytes = units[i].gather_buffer_bytes + (previous_buffer > own ? previous_buffer : 0),
                 .gradient_shard_bytes = kept_shards});
            previous_buffer = units[i].unsharded_bytes;
        }
        layout.moments.push_back({.phase = Phase::loss,
                                  .unsharded_bytes = kept.back(),
                                  .gradient_bytes = kept_gradients,
                                  .gradient_shard_bytes = kept_shards});
        std::int64_t previous_reduce =
            0;  // the reduce-scatter input of the unit before it lives until the next one
        for (const std::int32_t row : backward_order()) {
            const UnitLayout& unit = at_row(row);
            if (!reached(unit, first_trainable)) {
                continue;
            }
            const std::int32_t target = targets[static_cast<std::size_t>(row)];
            const std::int64_t prefetched =
                target >= 0 && at_row(target).frees_after_forward ? at_row(target).gather_buffer_bytes : 0;
            const std::int64_t around = sum_around(units, row, [&](std::int32_t e) {
                return places[static_cast<std::size_t>(e)].after(unit.end);
            });
            const std::int64_t done = keeps_shards ? shards.all() : shards.from(row + 1);
            const std::int64_t done_at_start =
                keeps_shards ? shards.all() : shards.from(first_behind(units, row));
            layout.moments.push_back({.phase = Phase::backward,
                                      .row = row,
                                      .unsharded_bytes = at_work(row),
                                      .gradient_bytes = kept_gradients + around,
                                      .buffer_bytes = prefetched + previous_reduce,
                                      .gradient_shard_bytes = done_at_start});
            layout.moments.push_back({.phase = Phase::gradient,
                                      .row = row,
                                      .unsharded_bytes = at_work(row),
                                      .gradient_bytes = kept_gradients + around + unit.gradient_bytes,
                                      .buffer_bytes = prefetched + previous_reduce,
                                      .gradient_shard_bytes = done});
            const std::int64_t waiting = keeps_gradients ? gradients.up_to(row) : unit.gradient_bytes;
            layout.moments.push_back(
                {.phase = Phase::reduce,
                 .row = row,
                 .unsharded_bytes = at_work(row) - unit.unsharded_bytes,
                 .gradient_bytes = waiting + around,
                 .buffer_bytes = prefetched + unit.reduce_buffer_bytes +
                                 extra[static_cast<std::size_t>(row)].reduce_output_bytes,
                 .gradient_shard_bytes = done});
            previous_reduce = unit.reduce_buffer_bytes > 0 ? unit.reduce_buffer_bytes : previous_reduce;
        }
        layout.moments.push_back({.phase = Phase::step, .gradient_shard_bytes = shards.all()});
    }

    std::vector<std::int32_t> backward_order() const {
        std::vector<std::int32_t> order = post_forward_order(layout.units);
        std::ranges::sort(order, std::greater<>{});
        return order;
    }
};

StepLayout lay_out_fsdp2(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job) {
    Fsdp2 step{.tree = tree, .plan = plan, .job = job, .layout = {}, .places = {}};
    if (job.reshard_after_forward.value_or(0) > 1 && *job.reshard_after_forward < job.mesh.shard) {
        step.post_forward_ranks = *job.reshard_after_forward;
    }
    step.layout.units = rows_of(tree, plan);
    step.places.resize(step.layout.units.size());
    step.extra.resize(step.layout.units.size());
    const std::vector<std::int32_t> last = last_rows(tree);
    for (std::size_t i = 0; i < step.layout.units.size(); ++i) {
        step.size_unit(i, last);
        step.places[i].sort();
    }
    step.targets = backward_targets(step.layout.units);
    step.drop_unreached();
    step.add_moments();
    add_up(step.layout);
    return std::move(step.layout);
}

constexpr std::array strategies{Strategy::full_shard, Strategy::shard_grad_op, Strategy::hybrid_shard,
                                Strategy::hybrid_shard_zero2};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo fsdp2;
constinit const RuntimeInfo fsdp2{
    .name = "fsdp2",
    .help = "torch.distributed.fsdp.fully_shard",
    .wraps_by_policy = false,
    .has_units = true,
    .strategies = strategies,
    .layout = lay_out_fsdp2,
    .lower = lower_fsdp2,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
