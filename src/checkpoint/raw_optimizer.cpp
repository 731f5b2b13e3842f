#include <algorithm>
#include <set>
#include <unordered_map>

#include "checkpoint/call_player.hpp"
#include "checkpoint/load_model.hpp"
#include "checkpoint/load_optimizer.hpp"
#include "wrap/flat_parameter.hpp"

// Optimizer.load_state_dict matches states to parameters by their place in the list. What they then hold
// shows when they are gathered the next time.
namespace fsdplan {
namespace {

constexpr const char* stage = "load_optim";

/// Elements of a saved tensor, one after the other.
struct Segment {
    std::string_view name;
    std::int64_t begin = 0;
    std::int64_t numel = 0;
};

/// One state as a rank finds it in the file.
struct SavedState {
    std::vector<Segment> segments;
    std::vector<std::int64_t> shape;
    std::int64_t numel = 0;
};

class RawLoad {
public:
    RawLoad(const SavedCheckpoint& saved, const CheckpointSide& to, const LoadRoute& route,
            Compatibility& out)
        : saved_(saved),
          to_(to),
          route_(route),
          out_(out),
          names_(to.layout),
          rows_(optimizer_list(to.layout)),
          placed_(placements(to.layout)),
          saved_placed_(placements(saved.from.layout)),
          kinds_(static_cast<std::int64_t>(saved.from.layout.optimizer.tensors.size())) {
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            row_of_.emplace(rows_[i], i);
        }
    }

    std::optional<Failure> run() {
        if (auto failure = refused()) {
            return failure;
        }
        for (const std::size_t row : saved_.optimizer_list) {
            const std::size_t tensors = saved_.lists_units ? saved_.from.layout.units[row].tensors.size() : 1;
            out_.optimizer_tensors += static_cast<std::int64_t>(tensors) * saved_.states_per_tensor();
        }
        if (saved_.keys == StateKeys::by_position && route_.converts) {
            return unusable("KeyError", "optimizer_name_not_in_model");
        }
        add_wrong_states(out_, missing_kinds(saved_, to_), "optimizer_kind");
        const StateLayout& layout = to_.layout;
        if (layout.runtime == StateRuntime::fsdp2) {
            judge_dtensors();
            return std::nullopt;
        }
        if (layout.runtime == StateRuntime::fsdp1 && layout.sharded) {
            return lists_units(layout) ? gather_flat() : gather_by_name();
        }
        judge_whole();
        return std::nullopt;
    }

private:
    std::optional<Failure> refused() const {
        if (saved_.keys == StateKeys::none || saved_.keys == StateKeys::by_flattened_name) {
            return route_.optimizer == OptimizerLoader::joint_dcp
                       ? inside_dcp(to_, "load_model", "RuntimeError", "dcp_missing_key")
                       : on_all_ranks(to_, stage, "KeyError", "optimizer_name_not_in_model");
        }
        if (route_.optimizer == OptimizerLoader::joint_dcp) {
            if (auto failure = refused_by_dcp()) {
                return failure;
            }
        }
        if (saved_.optimizer_list.size() != rows_.size()) {
            return on_all_ranks(to_, stage, "ValueError", "optimizer_group_size");
        }
        return misses_step(saved_, to_)
                   ? std::optional(on_all_ranks(to_, stage, "KeyError", "optimizer_name_not_in_model"))
                   : std::nullopt;
    }

    /// The keys of an unwrapped optimizer are numbers.
    std::optional<Failure> refused_by_dcp() const {
        const bool same_kinds = missing_kinds(saved_, to_) == 0;
        if (saved_.keys != StateKeys::by_position || saved_.lists_units || !same_kinds) {
            return inside_dcp(to_, "load_model", "RuntimeError", "dcp_missing_key");
        }
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            if (i >= saved_.optimizer_list.size()) {
                return inside_dcp(to_, "load_model", "RuntimeError", "dcp_missing_key");
            }
            if (saved_.from.layout.tensors[saved_.optimizer_list[i]].shape !=
                to_.layout.tensors[rows_[i]].shape) {
                return inside_dcp(to_, "load_model", "ValueError", "dcp_size_mismatch");
            }
        }
        return std::nullopt;
    }

    Failure unusable(const std::string& error_class, const std::string& code) const {
        return on_all_ranks(to_, "after_load", error_class, code);
    }

    /// State i of the list, as `rank` of the target finds it; nothing where the saver had none.
    std::optional<SavedState> state(std::size_t i, std::int64_t rank) const {
        const StateLayout& layout = saved_.from.layout;
        const std::size_t row = saved_.optimizer_list[i];
        const bool own_file = saved_.route.container == Container::rank_files;
        const std::int64_t shard_rank = layout.shard_rank(own_file ? rank : 0);
        if (saved_.lists_units) {
            return flat_state(layout.units[row], shard_rank);
        }
        const StateTensor& tensor = layout.tensors[row];
        SavedState out{.segments = {{saved_.names.first(row), 0, tensor.numel()}},
                       .shape = tensor.shape,
                       .numel = tensor.numel()};
        const bool pieces =
            saved_.keys == StateKeys::by_position && layout.runtime == StateRuntime::fsdp1 && layout.sharded;
        if (pieces) {
            const StateUnit& unit = *saved_placed_[row].unit;
            const std::int64_t offset = saved_placed_[row].offset;
            out.numel = local_numel(offset, tensor.numel(), unit.shard_numel, shard_rank);
            out.segments.front().begin = std::max<std::int64_t>(0, shard_rank * unit.shard_numel - offset);
            out.segments.front().numel = out.numel;
            out.shape = {out.numel};
            if (out.numel == 0) {
                return std::nullopt;
            }
        }
        return out;
    }

    SavedState flat_state(const StateUnit& unit, std::int64_t shard_rank) const {
        const StateLayout& layout = saved_.from.layout;
        const std::int64_t numel = layout.sharded ? unit.shard_numel : unit.aligned_numel;
        SavedState out{.shape = {numel}, .numel = numel};
        for (std::size_t i = 0; i < unit.tensors.size(); ++i) {
            const std::int64_t whole = layout.tensors[unit.tensors[i]].numel();
            const std::int64_t here = local_numel(unit.offsets[i], whole, numel, shard_rank);
            if (here > 0) {
                out.segments.push_back({saved_.names.first(unit.tensors[i]),
                                        std::max<std::int64_t>(0, shard_rank * numel - unit.offsets[i]),
                                        here});
            }
        }
        return out;
    }

    // ---- whole parameters

    void judge_whole() {
        if (lists_units(to_.layout)) {
            return judge_whole_units();
        }
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const StateTensor& tensor = to_.layout.tensors[rows_[i]];
            const std::string_view name = names_.first(rows_[i]);
            const auto found = state(i, 0);
            if (!found) {
                add_wrong_states(out_, saved_.states_per_tensor(), "absent");
            } else if (found->shape != tensor.shape) {
                add_wrong_states(out_, kinds_, "shape");
            } else if (found->segments.size() != 1 || found->segments.front().name != name) {
                add_wrong_states(out_, kinds_, "value");
            }
        }
    }

    void judge_whole_units() {
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            judge_gathered(to_.layout.units[rows_[i]], {state(i, 0)->segments});
        }
    }

    /// Every rank took rank 0's pieces, or its own.
    void judge_dtensors() {
        if (spreads_first_piece(saved_, to_, route_)) {
            const auto tensors = static_cast<std::int64_t>(saved_.optimizer_list.size());
            add_wrong_states(out_, kinds_ * tensors, "value");
        }
    }

    // ---- FSDP1: the next gather

    std::optional<Failure> gather_flat() {
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const StateUnit& unit = to_.layout.units[rows_[i]];
            RankFailures failures;
            std::vector<std::vector<Segment>> pieces;
            for (std::int64_t rank = 0; rank < to_.layout.mesh.shard; ++rank) {
                const SavedState found = state(i, rank).value_or(SavedState{});
                if (found.numel != unit.shard_numel) {
                    failures.raise(rank, unusable("RuntimeError", "optimizer_state_of_another_cut"));
                }
                pieces.push_back(found.segments);
            }
            if (failures.any()) {
                return failures.result();
            }
            judge_gathered(unit, pieces);
        }
        return std::nullopt;
    }

    /// Units in the order of the names with state; each wants all its parameters and its own sizes.
    std::optional<Failure> gather_by_name() {
        std::vector<std::size_t> order = rows_;
        std::ranges::sort(order, {}, [&](std::size_t tensor) { return names_.first(tensor); });
        std::set<const StateUnit*> done;
        for (const std::size_t tensor : order) {
            const StateUnit* unit = placed_[tensor].unit;
            if (unit == nullptr || done.contains(unit) || !any_state(tensor)) {
                continue;
            }
            done.insert(unit);
            if (auto failure = gather_unit(*unit)) {
                return failure;
            }
        }
        return std::nullopt;
    }

    bool any_state(std::size_t tensor) const {
        const std::size_t place = row_of_.at(tensor);
        for (std::int64_t rank = 0; rank < to_.layout.mesh.shard; ++rank) {
            if (state(place, rank)) {
                return true;
            }
        }
        return false;
    }

    std::optional<Failure> gather_unit(const StateUnit& unit) {
        for (const std::size_t tensor : unit.tensors) {
            if (to_.layout.tensors[tensor].trainable && !any_state(tensor)) {
                return unusable("RuntimeError", "optimizer_state_of_another_rank");
            }
        }
        RankFailures failures;
        std::vector<std::vector<Segment>> pieces;
        for (std::int64_t rank = 0; rank < to_.layout.mesh.shard; ++rank) {
            std::int64_t wanted = 0;
            std::int64_t found = 0;
            pieces.push_back(stream(unit, rank, wanted, found));
            if (wanted != found) {
                failures.raise(rank, unusable("AssertionError", "optimizer_state_of_another_cut"));
            }
        }
        if (failures.any()) {
            return failures.result();
        }
        judge_gathered(unit, pieces);
        return std::nullopt;
    }

    /// The states of one rank in the order of the flat parameter, with the gaps that belong between them.
    std::vector<Segment> stream(const StateUnit& unit, std::int64_t rank, std::int64_t& wanted,
                                std::int64_t& found) const {
        std::vector<Segment> out;
        std::int64_t end = 0;
        for (std::size_t i = 0; i < unit.tensors.size(); ++i) {
            const std::int64_t numel = to_.layout.tensors[unit.tensors[i]].numel();
            const std::int64_t gap = local_numel(end, unit.offsets[i] - end, unit.shard_numel, rank);
            if (gap > 0) {
                out.push_back({.numel = gap});
            }
            end = unit.offsets[i] + numel;
            const std::int64_t here = local_numel(unit.offsets[i], numel, unit.shard_numel, rank);
            if (!to_.layout.tensors[unit.tensors[i]].trainable) {
                out.push_back({.numel = here});
                continue;
            }
            wanted += here;
            if (const auto piece = state(row_of_.at(unit.tensors[i]), rank)) {
                found += piece->numel;
                out.insert(out.end(), piece->segments.begin(), piece->segments.end());
            }
        }
        return out;
    }

    /// Compares what a gather puts together with what belongs there.
    void judge_gathered(const StateUnit& unit, const std::vector<std::vector<Segment>>& pieces) {
        for (std::size_t i = 0; i < unit.tensors.size(); ++i) {
            const StateTensor& tensor = to_.layout.tensors[unit.tensors[i]];
            if (!tensor.trainable) {
                continue;
            }
            const std::int64_t begin = unit.offsets[i];
            if (!covers(names_.first(unit.tensors[i]), begin, begin + tensor.numel(), unit, pieces)) {
                add_wrong_states(out_, kinds_, "value");
            }
        }
    }

    static bool covers(std::string_view name, std::int64_t begin, std::int64_t end, const StateUnit& unit,
                       const std::vector<std::vector<Segment>>& pieces) {
        std::int64_t right = 0;
        for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
            std::int64_t at = static_cast<std::int64_t>(rank) * unit.shard_numel;
            for (const Segment& segment : pieces[rank]) {
                const std::int64_t from = std::max(at, begin);
                const std::int64_t to = std::min(at + segment.numel, end);
                if (from < to && segment.name == name && segment.begin + (from - at) == from - begin) {
                    right += to - from;
                }
                at += segment.numel;
            }
        }
        return right == end - begin;
    }

    const SavedCheckpoint& saved_;
    const CheckpointSide& to_;
    const LoadRoute& route_;
    Compatibility& out_;
    Names names_;
    std::vector<std::size_t> rows_;  // the target's optimizer list
    std::unordered_map<std::size_t, std::size_t> row_of_;
    std::vector<PlacedTensor> placed_;
    std::vector<PlacedTensor> saved_placed_;
    std::int64_t kinds_;
};

}  // namespace

std::optional<Failure> load_raw_optimizer(const SavedCheckpoint& saved, const CheckpointSide& to,
                                          const LoadRoute& route, Compatibility& out) {
    return RawLoad(saved, to, route, out).run();
}

}  // namespace fsdplan
