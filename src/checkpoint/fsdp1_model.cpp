#include "checkpoint/call_player.hpp"
#include "wrap/flat_parameter.hpp"

// FSDP1 visits its units in pre-order: a parent is gathered before its children and released after them, so
// that the ancestors of a unit at work stay gathered.
namespace fsdplan {
namespace {

using Form = StateRequest::Form;

/// Calls open(u) and close(u) in the order in which a state dict's hooks run. Units come in pre-order.
template <typename Open, typename Close>
void visit_units(const StateLayout& layout, Open open, Close close) {
    std::vector<std::size_t> path;
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
        while (!path.empty() && static_cast<std::int32_t>(path.back()) != layout.units[u].parent) {
            close(layout.units[path.back()]);
            path.pop_back();
        }
        open(layout.units[u]);
        path.push_back(u);
    }
    while (!path.empty()) {
        close(layout.units[path.back()]);
        path.pop_back();
    }
}

class ModelSave {
public:
    explicit ModelSave(CallPlayer& player) : player_(player), layout_(player.layout) {}

    void play() {
        const StateRequest& request = player_.request;
        if (!layout_.sharded) {
            return save_whole();  // NO_SHARD: FULL on every rank, whatever was asked for
        }
        if (request.form == Form::local) {
            return save_local();
        }
        keeps_ = request.form == Form::sharded || player_.keeps(layout_.shard_rank(player_.rank) == 0);
        visit_units(
            layout_, [&](const StateUnit& unit) { open(unit); }, [&](const StateUnit& unit) { close(unit); });
        if (keeps_) {
            hand_over_rest();
        }
    }

private:
    void save_whole() {
        for (const StateUnit& unit : layout_.units) {
            clone(unit, player_.device);
        }
        hand_over_rest();
    }

    /// Aliases of the flat shards; with original parameters also under their names.
    void save_local() {
        const std::vector<PlacedTensor> placed = placements(layout_);
        for (const StateUnit& unit : layout_.units) {
            player_.send(StateOperation::object_all_gather);
            const std::int64_t rank = layout_.shard_rank(player_.rank);
            player_.hand_over(
                bytes_of(local_numel(0, unit.aligned_numel, unit.shard_numel, rank), unit.dtype).count);
            for (std::size_t i = 0; layout_.use_orig_params && i < unit.entries.size(); ++i) {
                const std::size_t tensor = layout_.entries[unit.entries[i]].tensor;
                const std::int64_t numel = layout_.tensors[tensor].numel();
                player_.hand_over(
                    bytes_of(local_numel(placed[tensor].offset, numel, unit.shard_numel, rank), unit.dtype)
                        .count);
            }
        }
        hand_over_rest();
    }

    void open(const StateUnit& unit) {
        player_.gather(unit.shard_bytes(), unit.padded_bytes());
        if (!keeps_) {
            player_.device.give_back(unit.padded_bytes());
        } else if (moves_units()) {
            player_.copy_to_host(unit.aligned_bytes());
            player_.device.give_back(unit.padded_bytes());
        }
    }

    void close(const StateUnit& unit) {
        if (!keeps_) {
            return;
        }
        if (player_.request.form == Form::sharded) {
            cut(unit);
        } else {
            clone(unit, moves_units() ? player_.host : player_.device);
        }
        if (moves_units()) {  // back to the device, only to be freed there
            player_.copy_to_device(unit.padded_bytes());
            player_.host.give_back(unit.aligned_bytes());
        }
        player_.device.give_back(unit.padded_bytes());
    }

    /// FULL moves whole units to the host, SHARDED the pieces when they are cut.
    bool moves_units() const { return player_.request.form == Form::full && player_.offloads(); }

    void clone(const StateUnit& unit, Ledger& memory) {
        for (const std::size_t entry : unit.entries) {
            const std::int64_t bytes = layout_.tensors[layout_.entries[entry].tensor].bytes();
            memory.take(bytes);
            player_.hand_over(bytes);
        }
    }

    void cut(const StateUnit& unit) {
        for (const std::size_t entry : unit.entries) {
            const StateTensor& tensor = layout_.tensors[layout_.entries[entry].tensor];
            const std::int64_t piece = layout_.piece_bytes(tensor, player_.rank);
            // A DTensor is cut from a clone of the whole parameter.
            const std::int64_t whole = layout_.device_mesh ? tensor.bytes() : 0;
            player_.device.take(whole);
            player_.device.take(piece);
            player_.device.give_back(whole);
            if (player_.offloads()) {
                player_.copy_to_host(piece);
                player_.device.give_back(piece);
            }
            player_.hand_over(piece);
        }
    }

    /// Buffers, and parameters that no unit manages: aliases.
    void hand_over_rest() {
        std::vector<char> managed(layout_.tensors.size(), 0);
        for (const StateUnit& unit : layout_.units) {
            for (const std::size_t tensor : unit.tensors) {
                managed[tensor] = 1;
            }
        }
        for (const StateEntry& entry : layout_.entries) {
            const StateTensor& tensor = layout_.tensors[entry.tensor];
            if (managed[entry.tensor] != 0) {
                continue;
            }
            if (tensor.is_buffer && layout_.low_precision_buffers && is_floating_point(tensor.dtype)) {
                player_.device.take(tensor.bytes());  // cast back to the dtype it had
            }
            player_.hand_over(tensor.bytes());
        }
    }

    CallPlayer& player_;
    const StateLayout& layout_;
    bool keeps_ = true;
};

/// What loading pieces gathers of a unit before the unit itself.
std::int64_t gather_pieces(CallPlayer& player, const StateUnit& unit) {
    std::int64_t total = 0;
    for (const std::size_t entry : unit.entries) {
        const StateTensor& tensor = player.layout.tensors[player.layout.entries[entry].tensor];
        const std::int64_t gathered = player.layout.gathered_bytes(tensor);
        player.send(StateOperation::all_gather, player.layout.padded_piece_bytes(tensor), gathered);
        player.device.take(gathered);
        total += gathered;
    }
    return total;
}

/// The padded copy of a short piece lives until the next one is made: that of the last parameter while the
/// unit is gathered.
std::int64_t last_padding(const CallPlayer& player, const StateUnit& unit) {
    const StateLayout& layout = player.layout;
    const StateTensor& tensor = layout.tensors[layout.entries[unit.entries.back()].tensor];
    const std::int64_t padded = layout.padded_piece_bytes(tensor);
    return layout.piece_bytes(tensor, player.rank) < padded ? padded : 0;
}

}  // namespace

void play_fsdp1_model_save(CallPlayer& player) {
    ModelSave(player).play();
}

void play_fsdp1_model_load(CallPlayer& player) {
    const StateLayout& layout = player.layout;
    if (!layout.sharded) {
        return;  // copied in place
    }
    if (player.request.form == Form::local) {
        // A shard that ends in padding is padded anew.
        for (const StateUnit& unit : layout.units) {
            const std::int64_t rank = layout.shard_rank(player.rank);
            if (local_numel(0, unit.aligned_numel, unit.shard_numel, rank) < unit.shard_numel) {
                player.device.take(unit.shard_bytes());
                player.device.give_back(unit.shard_bytes());
            }
        }
        return;
    }
    const bool pieces = player.request.form == Form::sharded;
    std::vector<std::int64_t> opened;
    visit_units(
        layout,
        [&](const StateUnit& unit) {
            const std::int64_t gathered = pieces ? gather_pieces(player, unit) : 0;
            const std::int64_t padding = pieces && !layout.device_mesh ? last_padding(player, unit) : 0;
            player.device.take(padding);
            player.gather(unit.shard_bytes(), unit.padded_bytes());
            player.device.give_back(padding);
            opened.push_back(gathered + unit.padded_bytes());
        },
        [&](const StateUnit& /*unit*/) {
            player.device.give_back(opened.back());
            opened.pop_back();
        });
}

}  // namespace fsdplan
