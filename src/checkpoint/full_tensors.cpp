#include "checkpoint/call_player.hpp"

// The version-neutral API on FSDP2: pieces are the parameters themselves; a full state dict gathers tensor
// by tensor, and loading one scatters or broadcasts tensor by tensor from rank 0.
namespace fsdplan {
namespace {

using Form = StateRequest::Form;

/// One DTensor becomes a whole tensor: a view of the padded gather.
void gather_full(CallPlayer& player, std::int64_t piece, std::int64_t padded, std::int64_t whole) {
    const std::int64_t gathered = player.layout.shard_ranks() * padded;
    const bool is_short = piece < padded;
    player.device.take(is_short ? padded : 0);
    player.gather(padded, gathered);
    player.device.give_back(is_short ? padded : 0);
    const bool kept = !player.request.offload || player.rank == 0;
    if (player.offloads() && kept) {
        player.copy_to_host(whole);
    }
    if (player.offloads() || !kept) {
        player.device.give_back(gathered);
    }
}

class Save {
public:
    explicit Save(CallPlayer& player) : player_(player), layout_(player.layout) {
        keeps_ = player.request.form == Form::sharded || !player.request.offload || player.rank == 0;
    }

    void model() {
        for (const StateEntry& entry : layout_.entries) {
            const StateTensor& tensor = layout_.tensors[entry.tensor];
            tensor.is_buffer ? plain(tensor.bytes()) : cut(tensor, true);
        }
    }

    void optimizer() {
        for (const std::size_t t : optimizer_order(layout_)) {
            const StateTensor& tensor = layout_.tensors[t];
            for (std::size_t kind = 0; kind < layout_.optimizer.tensors.size(); ++kind) {
                cut(tensor, false);
            }
            if (layout_.optimizer.has_step) {
                plain(step_bytes);
            }
        }
    }

private:
    void plain(std::int64_t bytes) {
        if (keeps_) {
            player_.hand_over(bytes);
        }
    }

    std::int64_t scaled(const StateTensor& tensor, std::int64_t bytes, bool is_parameter) const {
        return is_parameter ? bytes : state_bytes(layout_, tensor, bytes);
    }

    void cut(const StateTensor& tensor, bool is_parameter) {
        const std::int64_t piece = scaled(tensor, layout_.piece_bytes(tensor, player_.rank), is_parameter);
        if (player_.request.form == Form::sharded) {
            if (player_.offloads()) {
                player_.copy_to_host(piece);
            }
            return player_.hand_over(piece);
        }
        const std::int64_t whole = scaled(tensor, tensor.bytes(), is_parameter);
        if (layout_.shard_ranks() > 1) {
            gather_full(player_, piece, scaled(tensor, layout_.padded_piece_bytes(tensor), is_parameter),
                        whole);
        }
        plain(whole);
    }

    CallPlayer& player_;
    const StateLayout& layout_;
    bool keeps_ = true;
};

/// Every rank passes a full dict, yet each tensor comes from a shard group's first rank; all new pieces live
/// until the end.
void scatter_tensors(CallPlayer& player) {
    const StateLayout& layout = player.layout;
    for (const StateEntry& entry : layout.entries) {
        const StateTensor& tensor = layout.tensors[entry.tensor];
        if (tensor.is_buffer) {
            continue;
        }
        const std::int64_t piece = layout.padded_piece_bytes(tensor);
        if (layout.mesh.replicate > 1) {  // first to one rank of each replica
            player.send(StateOperation::broadcast, tensor.bytes(), tensor.bytes());
        }
        const bool sends = layout.shard_rank(player.rank) == 0;
        const std::int64_t whole = layout.gathered_bytes(tensor);
        player.send(StateOperation::scatter, sends ? whole : piece, piece);
        // The pieces that rank 0 sends are copies where they must be padded.
        const std::int64_t sent = sends && whole > tensor.bytes() ? whole : 0;
        player.device.take(piece);
        player.device.take(sent + piece);
        player.device.give_back(sent + piece);
    }
}

/// One tensor after the other, copied straight into the piece that is there.
void broadcast_tensors(CallPlayer& player) {
    player.send(StateOperation::object_broadcast);
    for (const StateEntry& entry : player.layout.entries) {
        const std::int64_t bytes = player.layout.tensors[entry.tensor].bytes();
        player.send(StateOperation::broadcast, bytes, bytes);
        const bool new_there = player.rank != 0 || !player.on_cpu;
        player.device.take(new_there ? bytes : 0);
        player.device.give_back(new_there ? bytes : 0);
    }
}

}  // namespace

void play_fsdp2_save(CallPlayer& player) {
    Save save(player);
    player.request.subject == StateRequest::Subject::model ? save.model() : save.optimizer();
}

void play_fsdp2_load(CallPlayer& player) {
    if (player.request.form == Form::full) {
        player.request.rank0_only ? broadcast_tensors(player) : scatter_tensors(player);
    }
}

}  // namespace fsdplan
