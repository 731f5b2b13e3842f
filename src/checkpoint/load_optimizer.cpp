#include "checkpoint/load_optimizer.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

constexpr const char* stage = "load_optim";

class OptimizerLoad {
public:
    OptimizerLoad(const SavedCheckpoint& saved, const CheckpointSide& to, const LoadRoute& route)
        : saved_(saved), to_(to), route_(route), names_(to.layout) {}

    std::optional<Failure> failure() const {
        switch (route_.optimizer) {
            case OptimizerLoader::fsdp1:
                return load_file();
            case OptimizerLoader::fsdp1_from_dcp:
                return load_from_dcp();
            case OptimizerLoader::version_neutral:
                return route_.container == Container::dcp && !route_.converts ? load_pieces() : load_full();
            default:
                return std::nullopt;
        }
    }

    void judge(Compatibility& out) const {
        const auto kinds = static_cast<std::int64_t>(saved_.from.layout.optimizer.tensors.size());
        const bool overwrites = route_.optimizer == OptimizerLoader::fsdp1_from_dcp && to_.layout.sharded &&
                                to_.layout.mesh.replicate > 1;
        for (const std::size_t tensor : saved_.optimizer_list) {
            const std::string_view name = saved_.names.first(tensor);
            out.optimizer_tensors += saved_.states_per_tensor();
            const StateTensor* ours = names_.find(name);
            if (ours == nullptr || !is_first(name)) {
                add_wrong_states(out, saved_.states_per_tensor(), "absent");
            } else if (!ours->trainable) {
                dropped(out);
            } else if (overwrites) {  // load_sharded_optimizer_state_dict reads other ranks' pieces
                add_wrong_states(out, kinds, "value");
            } else if (saved_.states_overwritten) {
                add_wrong_states(out, kinds - 1, "value");
            }
        }
        add_wrong_states(out, route_.rank0_optimizer && is_fsdp2() ? 0 : missing_kinds(saved_, to_),
                         "optimizer_kind");
    }

private:
    static void dropped(Compatibility& out) {
        const std::string note = "optimizer state of the frozen parameter is dropped, no message";
        if (std::ranges::find(out.notes, note) == out.notes.end()) {
            out.notes.push_back(note);
        }
    }

    Failure raised(const std::string& error_class, const std::string& code) const {
        return on_all_ranks(to_, stage, error_class, code);
    }
    Failure where_it_is_read(const std::string& error_class, const std::string& code) const {
        Failure failure = raised(error_class, code);
        if (route_.rank0_optimizer) {
            failure.ranks = {0};
        }
        return failure;
    }
    Failure key_error() const { return raised("KeyError", "optimizer_name_not_in_model"); }
    bool is_fsdp1() const { return to_.layout.runtime == StateRuntime::fsdp1; }
    bool is_fsdp2() const { return to_.layout.runtime == StateRuntime::fsdp2; }
    bool is_first(std::string_view name) const {
        const std::int64_t tensor = names_.tensor(name);
        return tensor >= 0 && names_.first(static_cast<std::size_t>(tensor)) == name;
    }
    bool same_kinds() const {
        return saved_.from.layout.optimizer.tensors == to_.layout.optimizer.tensors &&
               saved_.from.layout.optimizer.has_step == to_.layout.optimizer.has_step;
    }

    // ---- FSDP.optim_state_dict_to_load

    std::optional<Failure> load_file() const {
        switch (saved_.keys) {
            case StateKeys::none:
                return where_it_is_read("KeyError", "optimizer_name_not_in_model");
            case StateKeys::by_position:
                return raised("AttributeError", "optimizer_keyed_by_number");
            default:
                return load_named(false);
        }
    }

    std::optional<Failure> load_from_dcp() const {
        switch (saved_.keys) {
            case StateKeys::none:
                return key_error();
            case StateKeys::by_position:
                return raised("KeyError", "optimizer_keyed_by_number");
            case StateKeys::by_flattened_name:
                return raised("ValueError", "other");
            case StateKeys::by_name:
                break;
        }
        return load_named(false);
    }

    /// `only_ours`: the version-neutral API has left out what the target's optimizer does not have.
    std::optional<Failure> load_named(bool only_ours) const {
        if (misses_part_of_a_unit()) {
            return raised("ValueError", "other");
        }
        for (const std::size_t tensor : saved_.optimizer_list) {
            const std::string_view name = saved_.names.first(tensor);
            const bool known = is_first(name) && names_.find(name)->trainable;
            const bool handed_on =
                !only_ours || (names_.find(name) != nullptr && names_.find(name)->trainable);
            if (!known && handed_on) {
                return key_error();
            }
        }
        if (!only_ours && !fills_groups()) {
            return raised("ValueError", "optimizer_group_size");
        }
        if (misses_step(saved_, to_)) {
            return key_error();
        }
        // Without the strict check states may be missing; the next gather wants all of a unit or none.
        if (to_.layout.sharded && has_partial_unit()) {
            return on_all_ranks(to_, "after_load", "RuntimeError", "optimizer_state_of_another_rank");
        }
        return std::nullopt;
    }

    bool has_partial_unit() const {
        return std::ranges::any_of(to_.layout.units, [&](const StateUnit& unit) {
            const auto wanted = [&](std::size_t t) { return to_.layout.tensors[t].trainable; };
            const auto has_state = [&](std::size_t t) { return saved_.has_state(names_.first(t)); };
            const auto trained = std::ranges::count_if(unit.tensors, wanted);
            const auto found =
                std::ranges::count_if(unit.tensors, [&](std::size_t t) { return wanted(t) && has_state(t); });
            return found > 0 && found < trained;
        });
    }

    /// Parameters of one flat parameter with state beside some without: no common step counter.
    bool misses_part_of_a_unit() const {
        if (!lists_units(to_.layout) || !saved_.from.layout.optimizer.has_step) {
            return false;
        }
        return std::ranges::any_of(to_.layout.units, [&](const StateUnit& unit) {
            const auto has_state = [&](std::size_t t) { return saved_.has_state(names_.first(t)); };
            return has_state(unit.tensors.front()) && !std::ranges::all_of(unit.tensors, has_state);
        });
    }

    /// Whether the saved names cover all that the target's optimizer lists.
    bool fills_groups() const {
        const auto saved_name = [&](std::size_t t) { return saved_.lists(names_.first(t)); };
        return std::ranges::all_of(optimizer_list(to_.layout), [&](std::size_t row) {
            return lists_units(to_.layout) ? std::ranges::any_of(to_.layout.units[row].tensors, saved_name)
                                           : saved_name(row);
        });
    }

    // ---- set_optimizer_state_dict

    /// What it checks before anything else: a state for every trainable parameter, under each name that the
    /// saved list has.
    bool misses_a_state(bool broken_names) const {
        if (broken_names) {
            return true;
        }
        for (const StateEntry& entry : to_.layout.entries) {
            const StateTensor& tensor = to_.layout.tensors[entry.tensor];
            if (!tensor.trainable) {
                continue;
            }
            const bool wanted = is_first(entry.name) || saved_.lists(entry.name);
            if (wanted && !saved_.has_state(entry.name)) {
                return true;
            }
        }
        return false;
    }

    /// FSDP1 around an activation checkpoint wrapper: the name cleaner leaves a prefix.
    bool breaks_names() const { return is_fsdp1() && to_.checkpoint_wrapper; }

    std::optional<Failure> load_full() const {
        if (saved_.keys == StateKeys::none) {
            return where_it_is_read("KeyError", "optimizer_name_not_in_model");
        }
        if (saved_.keys == StateKeys::by_position) {
            if (route_.converts) {  // numbers became places in a list
                return raised("RuntimeError", "dsd_missing_optimizer_state");
            }
            if (is_fsdp1()) {
                return raised("AttributeError", "optimizer_keyed_by_number");
            }
            Failure failure = where_it_is_read("KeyError", "optimizer_name_not_in_model");
            // Numbers are kept beside the names. Adam looks for its counter in them at once.
            if (route_.rank0_optimizer || !to_.layout.optimizer.has_step) {
                failure.stage = "after_load";
            }
            return failure;
        }
        const bool nested = saved_.keys == StateKeys::by_name;
        if (nested && to_.strict && misses_a_state(breaks_names())) {
            return where_it_is_read("RuntimeError", "dsd_missing_optimizer_state");
        }
        if (is_fsdp1()) {
            return load_named(true);
        }
        if (lists_second_name()) {
            return route_.rank0_optimizer ? where_it_is_read("ValueError", "optimizer_group_size")
                                          : key_error();
        }
        if (!same_kinds() && !route_.rank0_optimizer) {
            return key_error();
        }
        return std::nullopt;
    }

    /// The saved optimizer has two parameters that are one in the target.
    bool lists_second_name() const {
        return std::ranges::any_of(to_.layout.entries, [&](const StateEntry& entry) {
            return !is_first(entry.name) && saved_.lists(entry.name);
        });
    }

    std::optional<Failure> load_pieces() const {
        const StateKeys wanted = route_.flat_names ? StateKeys::by_flattened_name : StateKeys::by_name;
        if (to_.strict && (saved_.keys != wanted || !same_kinds() || !has_all_names())) {
            return inside_dcp(to_, stage, "RuntimeError", "dcp_missing_key");
        }
        if (!route_.flat_names && drops_a_tensor()) {
            return inside_dcp(to_, stage, "RuntimeError", "dcp_old_layout_guess");
        }
        if (route_.flat_names) {
            return breaks_names() ? std::optional(key_error()) : std::nullopt;
        }
        if (to_.strict && (breaks_names() || lists_second_name())) {
            return raised("RuntimeError", "dsd_missing_optimizer_state");
        }
        return breaks_names() ? std::optional(key_error()) : std::nullopt;
    }

    bool has_all_names() const {
        return std::ranges::all_of(to_.layout.entries, [&](const StateEntry& entry) {
            return !to_.layout.tensors[entry.tensor].trainable || !is_first(entry.name) ||
                   saved_.has_state(entry.name);
        });
    }

    /// A ShardedTensor of which some rank owns no rows is missing there; with parameter groups in the dict
    /// DCP then takes the checkpoint for one of an old release.
    bool drops_a_tensor() const {
        const StateLayout& layout = to_.layout;
        if (layout.runtime != StateRuntime::fsdp1 || !layout.sharded || layout.device_mesh) {
            return false;
        }
        return std::ranges::any_of(layout.tensors, [&](const StateTensor& tensor) {
            return tensor.trainable && layout.rows(tensor, layout.mesh.shard - 1) == 0;
        });
    }

    const SavedCheckpoint& saved_;
    const CheckpointSide& to_;
    const LoadRoute& route_;
    Names names_;
};

}  // namespace

bool misses_step(const SavedCheckpoint& saved, const CheckpointSide& to) {
    return to.layout.optimizer.has_step && !saved.from.layout.optimizer.has_step &&
           !saved.from.layout.optimizer.tensors.empty();
}

std::int64_t missing_kinds(const SavedCheckpoint& saved, const CheckpointSide& to) {
    const OptimizerStates& have = saved.from.layout.optimizer;
    const OptimizerStates& want = to.layout.optimizer;
    std::int64_t missing = want.has_step && !have.has_step ? 1 : 0;
    for (const std::string& name : want.tensors) {
        missing += std::ranges::find(have.tensors, name) == have.tensors.end() ? 1 : 0;
    }
    return missing;
}

void add_wrong_states(Compatibility& out, std::int64_t count, const char* kind) {
    if (count == 0) {
        return;
    }
    out.optimizer_wrong += count;
    if (std::ranges::find(out.wrong_kinds, kind) == out.wrong_kinds.end()) {
        out.wrong_kinds.emplace_back(kind);
        std::ranges::sort(out.wrong_kinds);
    }
}

std::optional<Failure> load_optimizer(const SavedCheckpoint& saved, const CheckpointSide& to,
                                      const LoadRoute& route, Compatibility& out) {
    const bool raw = route.optimizer == OptimizerLoader::raw || route.optimizer == OptimizerLoader::joint_dcp;
    if (raw) {
        return load_raw_optimizer(saved, to, route, out);
    }
    const OptimizerLoad load(saved, to, route);
    if (auto failure = load.failure()) {
        return failure;
    }
    load.judge(out);
    return std::nullopt;
}

}  // namespace fsdplan
