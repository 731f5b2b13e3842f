#include <algorithm>

#include "checkpoint/call_player.hpp"
#include "wrap/flat_parameter.hpp"

// FSDP1 gathers every optimizer state of a unit whole, whatever is asked for, and cuts it afterwards.
namespace fsdplan {
namespace {

using Form = StateRequest::Form;

bool has_states(const StateLayout& layout, std::size_t tensor) {
    return layout.tensors[tensor].trainable;
}

class OptimizerSave {
public:
    explicit OptimizerSave(CallPlayer& player)
        : player_(player), layout_(player.layout), kinds_(layout_.optimizer.tensors.size()) {}

    void play() {
        keeps_ = player_.request.form == Form::sharded || player_.keeps(player_.rank == 0);
        if (layout_.use_orig_params) {
            player_.send(StateOperation::object_all_gather);
        } else {
            player_.send(StateOperation::object_broadcast);
            constexpr std::int64_t flag = 4;
            player_.send(StateOperation::all_reduce, flag, flag);
        }
        if (!layout_.sharded) {
            return pass_through();
        }
        for (const StateUnit* unit : order()) {
            layout_.use_orig_params ? save_by_name(*unit) : save_flat(*unit);
        }
    }

private:
    void pass_through() {
        for (std::size_t t = 0; keeps_ && t < layout_.tensors.size(); ++t) {
            if (has_states(layout_, t)) {
                hand_over(layout_.tensors[t].bytes(), t);
            }
        }
    }

    /// The units in the order in which their first state is met.
    std::vector<const StateUnit*> order() const {
        const std::vector<PlacedTensor> placed = placements(layout_);
        std::vector<const StateUnit*> units;
        for (const std::size_t t : optimizer_order(layout_)) {
            const StateUnit* unit = placed[t].unit;
            if (unit != nullptr && (units.empty() || units.back() != unit)) {
                units.push_back(unit);
            }
        }
        return units;
    }

    std::int64_t state(std::int64_t bytes, const StateUnit& unit) const {
        return state_bytes(layout_, layout_.tensors[unit.tensors.front()], bytes);
    }

    /// One buffer for all states of the unit, and one for what this rank sends.
    void save_by_name(const StateUnit& unit) {
        player_.send(StateOperation::object_all_gather);
        const std::int64_t gathered = state(unit.padded_bytes(), unit);
        const std::int64_t shard = state(unit.shard_bytes(), unit);
        if (kinds_ == 0) {
            return;
        }
        player_.device.take(gathered);
        for (std::size_t kind = 0; kind < kinds_; ++kind) {
            player_.device.take(shard);
            if (kind > 0) {
                player_.device.give_back(shard);  // the one before goes when the new one is there
            }
            exchange(shard, gathered);
            keep_tensors(unit);
        }
        player_.device.give_back(shard);
        // On the CPU an "offloaded" state is a view of this buffer.
        if (!(keeps_ && player_.request.offload && player_.on_cpu && player_.request.form == Form::full)) {
            player_.device.give_back(gathered);
        }
        hand_over_unit(unit);
    }

    /// All states of a flat parameter are gathered before any is cut.
    void save_flat(const StateUnit& unit) {
        const std::int64_t gathered = state(unit.padded_bytes(), unit);
        for (std::size_t kind = 0; kind < kinds_; ++kind) {
            player_.device.take(gathered);
            exchange(state(unit.shard_bytes(), unit), gathered);
        }
        const auto all = static_cast<std::int64_t>(kinds_) * gathered;
        if (player_.request.form == Form::sharded || (keeps_ && player_.offloads())) {
            for (std::size_t kind = 0; kind < kinds_; ++kind) {
                keep_tensors(unit);
            }
            player_.device.give_back(all);
        } else if (!keeps_) {
            player_.device.give_back(all);
        }
        hand_over_unit(unit);
    }

    void exchange(std::int64_t input, std::int64_t output) {
        player_.send(StateOperation::all_gather, input, output);
        if (player_.on_cpu) {
            player_.device.take(output);
            player_.device.give_back(output);
        }
    }

    std::int64_t kept_bytes(std::size_t t) const {
        const StateTensor& tensor = layout_.tensors[t];
        return state_bytes(layout_, tensor,
                           player_.request.form == Form::sharded ? layout_.piece_bytes(tensor, player_.rank)
                                                                 : tensor.bytes());
    }

    void keep_tensors(const StateUnit& unit) {
        const bool alias = player_.request.offload && player_.on_cpu && player_.request.form == Form::full;
        if (!keeps_ || alias) {
            return;
        }
        for (const std::size_t t : unit.tensors) {
            if (!has_states(layout_, t)) {
                continue;
            }
            const std::int64_t bytes = kept_bytes(t);
            if (player_.offloads()) {
                const bool cut = player_.request.form == Form::sharded;
                player_.device.take(cut ? bytes : 0);
                player_.copy_to_host(bytes);
                player_.device.give_back(cut ? bytes : 0);
            } else {
                player_.device.take(bytes);
            }
        }
    }

    void hand_over_unit(const StateUnit& unit) {
        if (!keeps_) {
            return;
        }
        std::int64_t steps = 0;
        for (const std::size_t t : unit.tensors) {
            if (has_states(layout_, t)) {
                const StateTensor& tensor = layout_.tensors[t];
                hand_over(player_.request.form == Form::sharded ? layout_.piece_bytes(tensor, player_.rank)
                                                                : tensor.bytes(),
                          t);
                ++steps;
            }
        }
        if (layout_.optimizer.has_step) {
            player_.device.take(step_bytes * (layout_.use_orig_params ? steps : 1));
        }
    }

    void hand_over(std::int64_t bytes, std::size_t t) {
        for (std::size_t kind = 0; kind < kinds_; ++kind) {
            player_.hand_over(state_bytes(layout_, layout_.tensors[t], bytes));
        }
        if (layout_.optimizer.has_step) {
            player_.hand_over(step_bytes);
        }
    }

    CallPlayer& player_;
    const StateLayout& layout_;
    std::size_t kinds_;
    bool keeps_ = true;
};

class OptimizerLoad {
public:
    explicit OptimizerLoad(CallPlayer& player)
        : player_(player), layout_(player.layout), kinds_(layout_.optimizer.tensors.size()) {}

    void play() {
        if (broadcasts()) {
            player_.send(StateOperation::object_broadcast);
        }
        if (!layout_.use_orig_params) {
            for (const StateUnit& unit : layout_.units) {
                load_flat(unit);
            }
            return;
        }
        const std::vector<PlacedTensor> placed = placements(layout_);
        for (std::size_t t = 0; t < layout_.tensors.size(); ++t) {
            if (placed[t].unit != nullptr && has_states(layout_, t)) {
                load_by_name(t, placed[t]);
            }
        }
    }

private:
    bool broadcasts() const { return player_.request.form == Form::full && player_.request.rank0_only; }
    bool gathers() const { return player_.request.form == Form::sharded && layout_.sharded; }

    /// What arrives of one tensor's states, and how much memory that takes.
    std::int64_t receive(std::size_t t) {
        const StateTensor& tensor = layout_.tensors[t];
        std::int64_t taken = 0;
        for (std::size_t kind = 0; kind < kinds_; ++kind) {
            if (broadcasts()) {
                const std::int64_t bytes = state_bytes(layout_, tensor, tensor.bytes());
                player_.send(StateOperation::broadcast, bytes, bytes);
                const bool new_there = player_.rank != 0 || !player_.on_cpu;
                player_.device.take(new_there ? bytes : 0);
                taken += new_there ? bytes : 0;
            } else if (gathers()) {
                taken += gather_state(tensor);
            }
        }
        return taken;
    }

    std::int64_t gather_state(const StateTensor& tensor) {
        const std::int64_t padded = state_bytes(layout_, tensor, layout_.padded_piece_bytes(tensor));
        const std::int64_t gathered = state_bytes(layout_, tensor, layout_.gathered_bytes(tensor));
        const bool is_short = layout_.piece_bytes(tensor, player_.rank) < layout_.padded_piece_bytes(tensor);
        player_.device.take(is_short ? padded : 0);
        player_.gather(padded, gathered);
        player_.device.give_back(is_short ? padded : 0);
        return gathered;
    }

    void load_by_name(std::size_t t, const PlacedTensor& placed) {
        const std::int64_t received = receive(t);
        const StateTensor& tensor = layout_.tensors[t];
        std::int64_t piece = tensor.bytes();
        if (layout_.sharded) {
            const StateUnit& unit = *placed.unit;
            piece = bytes_of(local_numel(placed.offset, tensor.numel(), unit.shard_numel,
                                         layout_.shard_rank(player_.rank)),
                             unit.dtype)
                        .count;
        }
        for (std::size_t kind = 0; piece > 0 && kind < kinds_; ++kind) {
            const std::int64_t bytes = state_bytes(layout_, tensor, piece);
            player_.device.take(layout_.sharded ? bytes : 0);
            player_.hand_over(bytes);
        }
        if (piece > 0 && layout_.optimizer.has_step) {
            player_.hand_over(step_bytes);
        }
        player_.device.give_back(received);
    }

    /// Each state of a unit is put together whole before it is cut; the one before lives until then.
    void load_flat(const StateUnit& unit) {
        std::int64_t received = 0;
        bool any = false;
        for (const std::size_t t : unit.tensors) {
            if (has_states(layout_, t)) {
                received += receive(t);
                any = true;
            }
        }
        if (!any) {
            return;
        }
        if (layout_.optimizer.has_step) {
            player_.device.take(step_bytes);
            player_.hand_over(step_bytes);
        }
        std::int64_t numel = 0;
        for (const std::size_t t : unit.tensors) {
            numel += layout_.tensors[t].numel();
        }
        const StateTensor& front = layout_.tensors[unit.tensors.front()];
        const std::int64_t whole = state_bytes(layout_, front, bytes_of(numel, unit.dtype).count);
        const std::int64_t shard = layout_.sharded ? state_bytes(layout_, front, unit.shard_bytes()) : 0;
        for (std::size_t kind = 0; kind < kinds_; ++kind) {
            player_.device.take(whole);
            if (kind > 0 && layout_.sharded) {
                player_.device.give_back(whole);
            }
            player_.device.take(shard);
            player_.hand_over(layout_.sharded ? shard : whole);
        }
        player_.device.give_back((layout_.sharded && kinds_ > 0 ? whole : 0) + received);
    }

    CallPlayer& player_;
    const StateLayout& layout_;
    std::size_t kinds_;
};

}  // namespace

void play_fsdp1_optimizer_save(CallPlayer& player) {
    OptimizerSave(player).play();
}

void play_fsdp1_optimizer_load(CallPlayer& player) {
    OptimizerLoad(player).play();
}

}  // namespace fsdplan
