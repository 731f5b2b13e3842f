#include "fsdplan/checkpoint_cost.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "checkpoint/dcp_totals.hpp"

namespace fsdplan {
namespace {

constexpr double ns_per_s = 1e9;
// A pageable copy reaches between a third and all of PCIe's rate.
constexpr double slow_copy = 3.0;
// Storage is what varies most: half to twice the rate that was given.
constexpr double storage_spread = 2.0;

Estimate duration(double seconds, double spread_down, double spread_up) {
    const auto ns = [](double s) { return static_cast<std::int64_t>(std::llround(s * ns_per_s)); };
    return {ns(seconds), ns(seconds / spread_down), ns(seconds * spread_up)};
}

bool saves_model_only(const CheckpointFormat& format) {
    return format.writer == CheckpointWriter::dcp_safetensors;
}

/// Ranks that differ: the first, one like most, the one with the last rows, and the first of another replica.
std::vector<std::int64_t> telling_ranks(const StateLayout& layout) {
    std::vector<std::int64_t> ranks{0};
    const auto add = [&](std::int64_t rank) {
        if (rank < layout.mesh.ranks() && std::ranges::find(ranks, rank) == ranks.end()) {
            ranks.push_back(rank);
        }
    };
    add(1);
    add(layout.shard_ranks() - 1);
    add(layout.shard_ranks());
    return ranks;
}

/// Model and optimizer on one rank, one after the other.
struct RankPass {
    std::int64_t device_peak = 0;
    std::int64_t host_peak = 0;
    std::int64_t returned = 0;
    std::int64_t on_device = 0;  ///< of what is returned
    std::vector<StateEvent> events;
    std::int64_t copied = 0;
};

class Costing {
public:
    Costing(const CheckpointQuestion& question, const CheckpointFormat& format)
        : question_(question), layout_(question.layout), cluster_(question.cluster), format_(format) {
        out_.format = &format;
        with_optimizer_ =
            question.with_optimizer && !saves_model_only(format) && !layout_.optimizer.tensors.empty();
    }

    CheckpointCost run() {
        out_.refused = state_refusal(layout_, format_.model);
        if (format_.staging != Staging::none && !out_.refused) {
            out_.refused = staging_refusal(layout_);
        }
        if (out_.refused) {
            return out_;
        }
        pass(StateRequest::Direction::save, out_.save);
        pass(StateRequest::Direction::load, out_.load);
        writes();
        times();
        return out_;
    }

private:
    RankPass play(StateRequest::Direction direction, std::int64_t rank) const {
        RankPass out;
        std::int64_t device_kept = 0;
        std::int64_t host_kept = 0;
        const auto call = [&](StateRequest request) {
            request.direction = direction;
            if (direction == StateRequest::Direction::load && layout_.runtime == StateRuntime::fsdp2) {
                request.rank0_only = request.form == StateRequest::Form::full;  // broadcast_from_rank0
            }
            StateCall one = state_call(layout_, request, rank);
            out.device_peak = std::max(out.device_peak, device_kept + one.device_peak_bytes);
            out.host_peak = std::max(out.host_peak, host_kept + one.host_peak_bytes);
            device_kept += one.device_kept_bytes;
            host_kept += one.host_kept_bytes;
            out.returned += one.returned_bytes;
            out.copied += one.to_host_bytes + one.to_device_bytes;
            out.events.insert(out.events.end(), one.events.begin(), one.events.end());
        };
        call(format_.model);
        if (with_optimizer_ && calls_optimizer(direction)) {
            call(format_.optimizer);
        }
        out.on_device = out.returned - host_kept;
        return out;
    }

    /// LOCAL takes the optimizer's own dict, and FSDP2's states are loaded like its parameters.
    bool calls_optimizer(StateRequest::Direction direction) const {
        return format_.model.form != StateRequest::Form::local &&
               (direction == StateRequest::Direction::save || layout_.runtime != StateRuntime::fsdp2);
    }

    void pass(StateRequest::Direction direction, CheckpointPass& out) {
        const bool saves = direction == StateRequest::Direction::save;
        std::map<std::int64_t, std::int64_t> host;
        for (const std::int64_t rank : telling_ranks(layout_)) {
            const RankPass one = play(direction, rank);
            const std::int64_t extra = saves ? host_to_write(one, rank) : host_to_read(rank);
            out.device_peak_bytes = std::max(out.device_peak_bytes, one.device_peak);
            host[rank] = one.host_peak + extra;
            out.host_peak_bytes = std::max(out.host_peak_bytes, host[rank]);
            if (rank == 0) {
                traffic(one, saves, out);
            }
        }
        out.host_node_bytes = on_a_node(host);
    }

    /// The node with rank 0: how many ranks there are first in their group, and the rest like rank 1.
    std::int64_t on_a_node(const std::map<std::int64_t, std::int64_t>& host) const {
        const std::int64_t ranks = std::min(cluster_.gpus_per_node, layout_.mesh.ranks());
        const std::int64_t shard = layout_.shard_ranks();
        const auto of = [&](std::int64_t rank, std::int64_t otherwise) {
            const auto found = host.find(rank);
            return found == host.end() ? otherwise : found->second;
        };
        const std::int64_t first = of(0, 0);
        const std::int64_t other = shard > 1 ? of(1, first) : of(1, 0);
        const std::int64_t further_firsts = layout_.sharded ? ceil_div(ranks, shard) - 1 : 0;
        return first + further_firsts * of(shard, other) + (ranks - 1 - further_firsts) * other;
    }

    /// What writing holds in host memory beside the dict.
    std::int64_t host_to_write(const RankPass& one, std::int64_t rank) const {
        const std::int64_t largest = largest_tensor();
        switch (format_.writer) {
            case CheckpointWriter::rank0:
                return rank == 0 && one.on_device > 0 ? largest : 0;
            case CheckpointWriter::every_rank:
                return one.on_device > 0 ? piece_of(largest) : 0;
            case CheckpointWriter::dcp_safetensors:
                return 2 * one.returned;  // the file as one bytes object
            case CheckpointWriter::dcp:
                break;
        }
        constexpr std::int64_t in_flight = 10'000'000;
        const std::int64_t staged = format_.staging == Staging::none ? 0 : one.returned;
        return staged + std::min(one.returned, in_flight + piece_of(largest));
    }

    /// A full file is read whole by every rank that calls torch.load, DCP's chunks one by one.
    std::int64_t host_to_read(std::int64_t rank) const {
        switch (format_.writer) {
            case CheckpointWriter::rank0: {
                const bool reads = rank == 0 ||
                                   (layout_.runtime == StateRuntime::fsdp1 && layout_.sharded &&
                                    !format_.model.rank0_only) ||
                                   layout_.runtime == StateRuntime::plain;
                return reads ? whole_bytes() : 0;
            }
            case CheckpointWriter::every_rank:
                return piece_of(whole_bytes());
            default:
                return piece_of(largest_tensor());
        }
    }

    std::int64_t piece_of(std::int64_t bytes) const { return ceil_div(bytes, layout_.shard_ranks()); }

    std::int64_t largest_tensor() const {
        std::int64_t most = 0;
        for (const StateTensor& tensor : layout_.tensors) {
            most = std::max(most, tensor.bytes());
        }
        return most;
    }

    /// Everything once, as a file without overhead has it.
    std::int64_t whole_bytes() const {
        std::int64_t total = 0;
        for (const StateTensor& tensor : layout_.tensors) {
            total += tensor.bytes();
            if (with_optimizer_ && tensor.trainable) {
                total += optimizer_bytes(tensor);
            }
        }
        return total;
    }

    std::int64_t optimizer_bytes(const StateTensor& tensor) const {
        const OptimizerStates& states = layout_.optimizer;
        constexpr std::int64_t step_bytes = 4;
        return static_cast<std::int64_t>(states.tensors.size()) *
                   bytes_of(tensor.numel(), states.dtype.value_or(tensor.dtype)).count +
               (states.has_step ? step_bytes : 0);
    }

    void traffic(const RankPass& one, bool saves, CheckpointPass& out) {
        const bool by_dcp = format_.writer == CheckpointWriter::dcp || saves_model_only(format_);
        out.collectives =
            static_cast<std::int64_t>(one.events.size() + (by_dcp ? dcp_events(!saves).size() : 0));
        std::map<std::tuple<StateOperation, std::int64_t>, std::int64_t> alike;
        for (const StateEvent& event : one.events) {
            out.collective_bytes += event.output_bytes;
            ++alike[{event.operation, std::max(event.input_bytes, event.output_bytes)}];
        }
        for (const auto& [what, count] : alike) {
            const Estimate once = time_of(std::get<0>(what), std::get<1>(what));
            out.gather_ns = out.gather_ns + Estimate{once.value * count, once.low * count, once.high * count};
        }
        const double pcie = cluster_.gpu.pcie_bytes_per_s;
        std::int64_t copied = one.copied;
        if (saves) {  // what is still on the device goes through the host to the file
            copied += std::max<std::int64_t>(one.on_device, 0);
        }
        if (pcie > 0) {
            out.copy_ns = duration(static_cast<double>(copied) / pcie, 1.0, slow_copy);
        }
    }

    Estimate time_of(StateOperation operation, std::int64_t bytes) const {
        const RankGroup group =
            operation == StateOperation::all_gather || operation == StateOperation::scatter
                ? RankGroup::shard
                : RankGroup::world;
        const std::int64_t ranks = group == RankGroup::shard ? layout_.mesh.shard : layout_.mesh.ranks();
        // A scatter costs its sender what a broadcast of the same bytes costs; pickled objects are small.
        const CollectiveKind kind = operation == StateOperation::all_gather   ? CollectiveKind::all_gather
                                    : operation == StateOperation::all_reduce ? CollectiveKind::all_reduce
                                                                              : CollectiveKind::broadcast;
        return collective_time(cluster_, kind, Bytes{bytes}, place(group, layout_.mesh, cluster_, ranks)).ns;
    }

    void writes() {
        out_.one_writer = format_.writer == CheckpointWriter::rank0;
        const std::int64_t ranks = layout_.mesh.ranks();
        switch (format_.writer) {
            case CheckpointWriter::rank0:
                out_.files = 1;
                out_.written_bytes = out_.rank_written_bytes = full_file_bytes();
                break;
            case CheckpointWriter::every_rank:
                out_.files = ranks;
                out_.rank_written_bytes = play(StateRequest::Direction::save, 0).returned;
                if (format_.model.form == StateRequest::Form::local && with_optimizer_) {
                    out_.rank_written_bytes += piece_of(whole_bytes() - model_bytes());
                }
                out_.written_bytes = layout_.mesh.replicate * whole_bytes();
                break;
            case CheckpointWriter::dcp_safetensors:
                out_.files = ranks;
                out_.written_bytes = model_bytes();
                out_.rank_written_bytes = ceil_div(model_bytes(), ranks);
                break;
            case CheckpointWriter::dcp: {
                const DcpTotals totals = dcp_totals(layout_, with_optimizer_);
                out_.files = ranks + 1;
                out_.written_bytes = totals.bytes + totals.metadata_bytes;
                out_.rank_written_bytes = totals.largest_rank_bytes;
                plan_bytes_ = totals.plan_bytes;
                break;
            }
        }
        out_.written_exact = !layout_.optimizer.is_estimate && format_.writer == CheckpointWriter::dcp;
    }

    std::int64_t model_bytes() const {
        std::int64_t total = 0;
        for (const StateTensor& tensor : layout_.tensors) {
            total += tensor.bytes();
        }
        return total;
    }

    /// A full dict has a tied tensor once a name where names were cloned.
    std::int64_t full_file_bytes() const {
        std::int64_t total = whole_bytes() - model_bytes();
        for (const StateEntry& entry : layout_.entries) {
            total += layout_.tensors[entry.tensor].bytes();
        }
        return total;
    }

    void times() {
        const CheckpointStorage& storage = question_.storage;
        double seconds = static_cast<double>(out_.rank_written_bytes) / storage.rank_bytes_per_s;
        if (storage.store_bytes_per_s > 0) {
            seconds = std::max(seconds, static_cast<double>(out_.written_bytes) / storage.store_bytes_per_s);
        }
        out_.write_ns = duration(seconds, storage_spread, storage_spread);
        const Estimate planning =
            duration(static_cast<double>(plan_bytes_) / storage.control_bytes_per_s, 1.0, slow_copy);
        out_.time_ns = out_.save.gather_ns + out_.save.copy_ns + planning;
        if (format_.staging == Staging::none) {
            out_.time_ns = out_.time_ns + out_.write_ns;  // else training goes on meanwhile
        }
        out_.exceeds_timeout = out_.one_writer && layout_.mesh.ranks() > 1 && seconds > storage.timeout_s;
    }

    const CheckpointQuestion& question_;
    const StateLayout& layout_;
    const Cluster& cluster_;
    const CheckpointFormat& format_;
    bool with_optimizer_ = true;
    std::int64_t plan_bytes_ = 0;
    CheckpointCost out_;
};

}  // namespace

CheckpointCost checkpoint_cost(const CheckpointQuestion& question, const CheckpointFormat& format) {
    return Costing(question, format).run();
}

std::vector<CheckpointCost> checkpoint_costs(const CheckpointQuestion& question) {
    std::vector<CheckpointCost> costs;
    for (const CheckpointFormat& format : checkpoint_formats()) {
        if (format.runtime == question.layout.runtime) {
            costs.push_back(checkpoint_cost(question, format));
        }
    }
    return costs;
}

const CheckpointCost* recommended_format(std::span<const CheckpointCost> costs, std::int64_t resident_bytes,
                                         std::int64_t budget_bytes) {
    const CheckpointCost* best = nullptr;
    for (const CheckpointCost& cost : costs) {
        // Other ways tie the checkpoint to this number of ranks, or leave the optimizer out.
        const bool portable =
            cost.format->writer == CheckpointWriter::rank0 || cost.format->writer == CheckpointWriter::dcp;
        const bool blocks = cost.format->staging == Staging::none;
        if (portable && blocks && !cost.exceeds_timeout && cost.fits(resident_bytes, budget_bytes) &&
            (best == nullptr || cost.time_ns.value < best->time_ns.value)) {
            best = &cost;
        }
    }
    return best;
}

}  // namespace fsdplan
