#include "checkpoint/load_model.hpp"

#include <algorithm>
#include <map>

#include "wrap/flat_parameter.hpp"

namespace fsdplan {
namespace {

constexpr const char* stage = "load_model";

/// What Module.load_state_dict complains about, all at once.
struct Complaints {
    bool missing = false;
    bool unexpected = false;
    bool size = false;
    bool copy = false;

    bool any() const { return missing || unexpected || size || copy; }
    std::string code() const {
        std::string words;
        const auto add = [&](bool said, const char* word) {
            if (said) {
                words += (words.empty() ? "" : "+") + std::string(word);
            }
        };
        add(missing, "missing");
        add(unexpected, "unexpected");
        add(size, "size");
        add(copy, "copy");
        return "module_load:" + words;
    }
};

class ModelLoad {
public:
    ModelLoad(const SavedCheckpoint& saved, const CheckpointSide& to, const LoadRoute& route)
        : saved_(saved), to_(to), route_(route), names_(to.layout) {}

    std::optional<Failure> run() {
        if (to_.mixed_requires_grad && lists_units(to_.layout)) {
            return on_all_ranks(to_, "build", "ValueError", "other");
        }
        if (reads_dcp()) {
            // The dict that DCP is to fill is made before anything is read.
            if (const auto refused = state_refusal(to_.layout, {.form = form_asked_for()})) {
                return raised(refused->error_class, refused->code);
            }
        }
        if (auto absent = container_failure()) {
            return absent;
        }
        if (to_.layout.tied_across_units) {  // a unit meets the other's flat shard under its own name
            return reads_dcp() ? inside_dcp(to_, stage, "ValueError", "dcp_size_mismatch")
                               : raised("RuntimeError", "module_load:size");
        }
        switch (route_.container) {
            case Container::dcp:
                return route_.converts ? load_converted() : load_dcp();
            case Container::hf_safetensors:
                return load_dcp();
            case Container::rank_files:
                return load_rank_files();
            case Container::full_file:
            case Container::safetensors:
                break;
        }
        return load_whole();
    }

private:
    Failure raised(const std::string& error_class, const std::string& code) const {
        return on_all_ranks(to_, stage, error_class, code);
    }
    Failure on_first_rank(const std::string& error_class, const std::string& code) const {
        Failure failure = raised(error_class, code);
        failure.ranks = {0};
        return failure;
    }
    bool only_first_reads() const {
        return route_.model == ModelLoader::rank0_sync ||
               route_.model == ModelLoader::version_neutral_broadcast;
    }

    /// The files that the route wants are not those that were written.
    std::optional<Failure> container_failure() const {
        const Container have = saved_.route.container;
        if (route_.container == have ||
            (route_.container == Container::hf_safetensors && have == Container::safetensors)) {
            return std::nullopt;
        }
        switch (route_.container) {
            case Container::dcp:
                if (route_.converts) {
                    Failure failure = inside_dcp(to_, stage, "AssertionError", "file_absent");
                    failure.ranks = {0};
                    return failure;
                }
                return inside_dcp(to_, stage, "AssertionError", "file_absent");
            case Container::hf_safetensors:
                return inside_dcp(to_, stage, "RuntimeError", "dcp_missing_key");
            default:
                return only_first_reads() ? on_first_rank("FileNotFoundError", "file_absent")
                                          : raised("FileNotFoundError", "file_absent");
        }
    }

    /// DCP fills a dict of the model itself.
    bool reads_dcp() const {
        return (route_.container == Container::dcp && !route_.converts) ||
               route_.container == Container::hf_safetensors;
    }

    bool asks_for_flat() const { return route_.model == ModelLoader::fsdp1_local && to_.layout.sharded; }

    // ---- through DCP

    std::optional<Failure> load_dcp() const {
        if (asks_for_flat()) {
            return load_local_dcp();
        }
        const bool partial = !to_.strict && route_.model == ModelLoader::version_neutral_pieces &&
                             route_.container == Container::dcp;
        for (const StateEntry& entry : to_.layout.entries) {
            const StateTensor* theirs = saved_.names.find(entry.name);
            const bool there = theirs != nullptr && in_file(entry.name) &&
                               (!saved_.flat || theirs->is_buffer || saved_.from.layout.use_orig_params);
            if (!there && !partial) {
                return inside_dcp(to_, stage, "RuntimeError", "dcp_missing_key");
            }
            if (there && (theirs->shape != to_.layout.tensors[entry.tensor].shape ||
                          (saved_.flat && !theirs->is_buffer))) {
                return inside_dcp(to_, stage, "ValueError", "dcp_size_mismatch");
            }
        }
        return std::nullopt;
    }

    StateRequest::Form form_asked_for() const {
        return route_.model == ModelLoader::fsdp1_local ? StateRequest::Form::local
                                                        : StateRequest::Form::sharded;
    }

    bool in_file(std::string_view name) const {
        const std::int64_t tensor = saved_.names.tensor(name);
        return tensor >= 0 && saved_.has_name({std::string(name), static_cast<std::size_t>(tensor)});
    }

    /// Flat parameters of the same names and sizes, cut for the same number of ranks. With original
    /// parameters the pieces of each come first, which every rank saved under one name.
    std::optional<Failure> load_local_dcp() const {
        if (to_.layout.use_orig_params) {
            return saved_.flat && !saved_.from.layout.use_orig_params
                       ? inside_dcp(to_, stage, "RuntimeError", "dcp_missing_key")
                       : inside_dcp(to_, stage, "ValueError", "dcp_size_mismatch");
        }
        for (const StateUnit& unit : to_.layout.units) {
            const StateUnit* theirs = saved_unit(unit.path);
            if (theirs == nullptr) {
                return inside_dcp(to_, stage, "RuntimeError", "dcp_missing_key");
            }
            if (theirs->aligned_numel != unit.aligned_numel) {
                return inside_dcp(to_, stage, "ValueError", "dcp_size_mismatch");
            }
        }
        if (saved_.from.layout.shard_ranks() != to_.layout.shard_ranks()) {
            return inside_dcp(to_, stage, "RuntimeError", "dcp_local_reshard_in_place");
        }
        return std::nullopt;
    }

    const StateUnit* saved_unit(std::string_view path) const {
        const auto& units = saved_.from.layout.units;
        const auto found = std::ranges::find(units, path, &StateUnit::path);
        return !saved_.flat || found == units.end() ? nullptr : &*found;
    }

    std::optional<Failure> load_converted() const {
        if (saved_.flat) {
            return route_.model == ModelLoader::module ? raised("RuntimeError", flat_complaints().code())
                                                       : raised("RuntimeError", "other");
        }
        return load_whole();
    }

    Complaints flat_complaints() const {
        const bool named = saved_.from.layout.use_orig_params;  // pieces, under the original names
        return {.missing = to_.strict && !named, .unexpected = to_.strict, .size = named};
    }

    // ---- one file

    std::optional<Failure> load_whole() const {
        if (route_.model == ModelLoader::version_neutral_full && route_.container == Container::safetensors &&
            to_.layout.runtime == StateRuntime::plain) {
            return strict_load(saved_.kind);
        }
        switch (route_.model) {
            case ModelLoader::version_neutral_full:
            case ModelLoader::version_neutral_broadcast:
                return load_version_neutral();
            case ModelLoader::rank0_sync: {
                Complaints complaints = compare_names();
                complaints.copy = saved_.kind != ValueKind::whole;
                return complaints.any() ? std::optional(on_first_rank("RuntimeError", complaints.code()))
                                        : std::nullopt;
            }
            default:
                return strict_load(route_.converts ? ValueKind::whole : saved_.kind);
        }
    }

    Complaints compare_names() const {
        Complaints complaints;
        for (const StateEntry& entry : to_.layout.entries) {
            const StateTensor* theirs = in_file(entry.name) ? saved_.names.find(entry.name) : nullptr;
            complaints.missing |= theirs == nullptr && to_.strict;
            complaints.size |= theirs != nullptr && theirs->shape != to_.layout.tensors[entry.tensor].shape;
        }
        complaints.unexpected = has_surplus() && to_.strict;
        return complaints;
    }

    bool has_surplus() const {
        return std::ranges::any_of(saved_.from.layout.entries, [&](const StateEntry& entry) {
            return saved_.has_name(entry) && names_.find(entry.name) == nullptr;
        });
    }

    /// Module.load_state_dict copies each value into the parameter that is there.
    std::optional<Failure> strict_load(ValueKind kind) const {
        Complaints complaints = compare_names();
        RankFailures failures;
        for (std::int64_t rank = 0; rank < to_.world(); ++rank) {
            Complaints here = complaints;
            here.copy = !can_copy(kind, rank);
            if (here.any()) {
                failures.raise(rank, raised("RuntimeError", here.code()));
            }
        }
        return failures.any() ? std::optional(failures.result()) : std::nullopt;
    }

    bool can_copy(ValueKind kind, std::int64_t rank) const {
        const StateLayout& layout = to_.layout;
        if (layout.runtime != StateRuntime::fsdp2) {
            return kind == ValueKind::whole;
        }
        if (kind != ValueKind::dtensor || !same_mesh(layout, saved_.from.layout)) {
            return false;
        }
        // The file of rank 0 holds its pieces: they fit where a rank has as many rows.
        return saved_.route.container != Container::full_file ||
               std::ranges::all_of(layout.tensors, [&](const StateTensor& tensor) {
                   return tensor.is_buffer || layout.rows(tensor, rank) == layout.rows(tensor, 0);
               });
    }

    /// What is missing stays as it is without a word, but for a broadcast; what is too much is refused.
    std::optional<Failure> load_version_neutral() const {
        const bool fsdp1 = to_.layout.runtime == StateRuntime::fsdp1;
        const bool broadcasts = route_.model == ModelLoader::version_neutral_broadcast;
        if (saved_.kind == ValueKind::dtensor && !route_.converts) {
            return load_foreign_dtensors(broadcasts);
        }
        Complaints complaints = compare_names();
        if (fsdp1 && to_.checkpoint_wrapper && to_.strict) {  // the wrapper's prefix stays in the names
            return broadcasts ? beyond_first_rank("RuntimeError", "module_load:missing")
                              : raised("RuntimeError", "module_load:missing+unexpected");
        }
        if (broadcasts && complaints.missing) {
            return raised("RuntimeError", complaints.code());
        }
        // What is missing is taken from the model; from a flat parameter that is a piece.
        complaints.size |= lacks_names() && fsdp1 && lists_units(to_.layout);
        complaints.missing = false;
        if (!complaints.any()) {
            return std::nullopt;
        }
        return broadcasts ? on_first_rank("RuntimeError", complaints.code())
                          : raised("RuntimeError", complaints.code());
    }

    bool lacks_names() const {
        return std::ranges::any_of(to_.layout.entries,
                                   [&](const StateEntry& entry) { return !in_file(entry.name); });
    }

    std::optional<Failure> beyond_first_rank(const std::string& error_class, const std::string& code) const {
        Failure failure = raised(error_class, code);
        failure.ranks.erase(failure.ranks.begin());
        return failure.ranks.empty() ? std::nullopt : std::optional(failure);
    }

    /// A file of rank 0's DTensors where whole tensors are expected.
    std::optional<Failure> load_foreign_dtensors(bool broadcasts) const {
        if (broadcasts) {
            return on_first_rank("NotImplementedError", "other");
        }
        if (to_.layout.runtime == StateRuntime::fsdp2 && !same_mesh(to_.layout, saved_.from.layout)) {
            return raised("ValueError", "other");
        }
        return strict_load(saved_.kind);
    }

    // ---- a file of each rank

    std::optional<Failure> load_rank_files() const {
        // FSDP1 gathers its units before it copies: a rank without a file leaves the others waiting there.
        const bool gathers_first = route_.model == ModelLoader::module && to_.layout.sharded &&
                                   to_.layout.runtime == StateRuntime::fsdp1;
        const std::int64_t first = gathers_first && saved_.from.world() < to_.world() &&
                                           saved_.kind != ValueKind::sharded_tensor && !saved_.flat
                                       ? saved_.from.world()
                                       : 0;
        RankFailures failures;
        for (std::int64_t rank = first; rank < to_.world(); ++rank) {
            if (const auto failure = load_rank_file(rank)) {
                failures.raise(rank, *failure);
            }
        }
        return failures.any() ? std::optional(failures.result()) : std::nullopt;
    }

    std::optional<Failure> load_rank_file(std::int64_t rank) const {
        if (rank >= saved_.from.world()) {
            return raised("FileNotFoundError", "file_absent");
        }
        // A ShardedTensor counts the ranks of its world when it is unpickled.
        if ((saved_.kind == ValueKind::sharded_tensor || saved_.flat) && saved_.from.world() != to_.world()) {
            return raised("RuntimeError", "sharded_tensor_other_world");
        }
        if (const auto refused = state_refusal(to_.layout, {.form = form_asked_for()})) {
            return raised(refused->error_class, refused->code);
        }
        if (asks_for_flat()) {
            return load_local(rank);
        }
        if (route_.model == ModelLoader::fsdp1_sharded && to_.layout.sharded) {
            return load_pieces();
        }
        if (saved_.flat) {
            return raised("RuntimeError", flat_complaints().code());
        }
        Complaints complaints = compare_names();
        complaints.copy = !can_copy(saved_.kind, rank);
        return complaints.any() ? std::optional(raised("RuntimeError", complaints.code())) : std::nullopt;
    }

    std::optional<Failure> load_pieces() const {
        if (saved_.flat && !saved_.from.layout.use_orig_params) {  // none of its names is wanted
            return raised("RuntimeError", flat_complaints().code());
        }
        if (to_.layout.device_mesh) {
            if (saved_.kind == ValueKind::sharded_tensor && !saved_.flat) {
                return raised("AttributeError", "sharded_tensor_where_dtensor_wanted");
            }
            if (saved_.kind != ValueKind::dtensor) {
                return raised("AttributeError", "other");
            }
            if (!same_mesh(to_.layout, saved_.from.layout)) {
                return raised("AssertionError", "dtensor_other_mesh");
            }
        } else if (saved_.kind != ValueKind::sharded_tensor || saved_.flat) {
            return raised("AssertionError", "dtensor_where_sharded_tensor_wanted");
        }
        const Complaints complaints = compare_names();
        return complaints.any() ? std::optional(raised("RuntimeError", complaints.code())) : std::nullopt;
    }

    /// LOCAL: a hook of each unit wants its flat parameter; the rest is a strict load.
    std::optional<Failure> load_local(std::int64_t rank) const {
        const StateLayout& theirs = saved_.from.layout;
        const std::int64_t shard_rank = to_.layout.shard_rank(rank);
        Complaints complaints;
        for (const StateUnit& unit : to_.layout.units) {
            const StateUnit* file = saved_unit(unit.path);
            if (file == nullptr) {
                return raised("AssertionError", "local_unit_missing");
            }
            std::int64_t numel =
                local_numel(0, file->aligned_numel, file->shard_numel, theirs.shard_rank(rank));
            const std::int64_t padding =
                unit.shard_numel - local_numel(0, unit.aligned_numel, unit.shard_numel, shard_rank);
            if (padding > 0 && unit.shard_numel <= numel) {
                return raised("AssertionError", "local_shard_size");
            }
            complaints.size |= !to_.layout.use_orig_params && numel + padding != unit.shard_numel;
        }
        if (to_.layout.use_orig_params) {
            complaints.missing = to_.strict && !theirs.use_orig_params;
            complaints.unexpected = to_.strict;  // the flat parameters
            complaints.size = theirs.use_orig_params && local_sizes_differ(rank);
        } else {
            complaints.unexpected =
                to_.strict && (theirs.use_orig_params || theirs.units.size() > to_.layout.units.size());
        }
        return complaints.any() ? std::optional(raised("RuntimeError", complaints.code())) : std::nullopt;
    }

    /// Pieces of each parameter under its own name, cut by units.
    bool local_sizes_differ(std::int64_t rank) const {
        const auto sizes = [&](const StateLayout& layout) {
            std::map<std::string_view, std::int64_t> out;
            for (const StateUnit& unit : layout.units) {
                for (std::size_t i = 0; i < unit.tensors.size(); ++i) {
                    const std::int64_t numel = layout.tensors[unit.tensors[i]].numel();
                    out[name_in(layout, unit.tensors[i])] =
                        local_numel(unit.offsets[i], numel, unit.shard_numel, layout.shard_rank(rank));
                }
            }
            return out;
        };
        return sizes(to_.layout) != sizes(saved_.from.layout);
    }
    std::string_view name_in(const StateLayout& layout, std::size_t tensor) const {
        return (&layout == &to_.layout ? names_ : saved_.names).first(tensor);
    }

    const SavedCheckpoint& saved_;
    const CheckpointSide& to_;
    const LoadRoute& route_;
    Names names_;
};

}  // namespace

bool same_mesh(const StateLayout& a, const StateLayout& b) {
    return a.mesh == b.mesh;
}

std::optional<Failure> model_failure(const SavedCheckpoint& saved, const CheckpointSide& to,
                                     const LoadRoute& route) {
    return ModelLoad(saved, to, route).run();
}

bool spreads_first_piece(const SavedCheckpoint& saved, const CheckpointSide& to, const LoadRoute& route) {
    return saved.kind == ValueKind::dtensor && saved.route.container == Container::full_file &&
           route.model == ModelLoader::module && to.layout.shard_ranks() > 1;
}

}  // namespace fsdplan
