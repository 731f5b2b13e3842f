#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/checkpoint.hpp"
#include "fsdplan/cost.hpp"

// What one checkpoint costs by each way of saving: memory, traffic, files and time.
namespace fsdplan {

/// Who writes what.
enum class CheckpointWriter : std::uint8_t {
    rank0,           ///< one torch.save file
    every_rank,      ///< a torch.save file of each rank
    dcp,             ///< torch.distributed.checkpoint
    dcp_safetensors  ///< the same in safetensors form, the model alone
};

/// How asynchronous DCP copies the state ahead.
enum class Staging : std::uint8_t { none, pageable, kept };

/// A way of saving; an entry of checkpoint_formats().
struct CheckpointFormat {
    std::string_view type;  ///< "full,offload,rank0", …: JSON and --save-type
    std::string_view help;
    StateRuntime runtime{};  ///< that offers it
    StateRequest model;
    StateRequest optimizer;
    CheckpointWriter writer{};
    Staging staging = Staging::none;
};
std::span<const CheckpointFormat> checkpoint_formats();
/// Of the layout's runtime; throws Error(input) at `option` with the nearest types.
const CheckpointFormat& checkpoint_format(std::string_view type, StateRuntime runtime,
                                          std::string_view option);

/// Rates that no data sheet has, and a limit.
struct CheckpointStorage {
    double rank_bytes_per_s = 1e9;     ///< that one rank writes or reads at
    double store_bytes_per_s = 0.0;    ///< of all ranks together; 0: no limit
    double control_bytes_per_s = 1e9;  ///< at which rank 0 takes in pickled plans
    double timeout_s = 600.0;          ///< of the process group; NCCL's default
};

struct CheckpointQuestion {
    StateLayout layout;
    Cluster cluster;
    CheckpointStorage storage;
    bool with_optimizer = true;
};

/// One direction of one format.
struct CheckpointPass {
    std::int64_t device_peak_bytes = 0;  ///< of the rank that needs most, above what is there anyhow
    std::int64_t host_peak_bytes = 0;    ///< of the rank that needs most
    std::int64_t host_node_bytes = 0;    ///< of the node that needs most
    std::int64_t collectives = 0;        ///< of one rank, pickled objects included
    std::int64_t collective_bytes = 0;   ///< that arrive on one rank; without pickled objects
    Estimate gather_ns;
    Estimate copy_ns;  ///< over PCIe
};

struct CheckpointCost {
    const CheckpointFormat* format = nullptr;
    std::optional<StateRefusal> refused;  ///< PyTorch does not save so; the rest is empty
    CheckpointPass save;
    CheckpointPass load;
    std::int64_t written_bytes = 0;       ///< in all
    std::int64_t rank_written_bytes = 0;  ///< by the rank that writes most
    std::int64_t files = 0;
    bool written_exact = true;  ///< false: pickles of names, or an optimizer's odd states, are in it
    Estimate write_ns;
    Estimate time_ns;  ///< of saving: gather, copy, write and plan
    bool one_writer = false;
    bool exceeds_timeout = false;  ///< the ranks that wait for the one writer give up

    /// Device memory while saving beside what stays resident meanwhile.
    bool fits(std::int64_t resident_bytes, std::int64_t budget_bytes) const {
        return !refused && resident_bytes + save.device_peak_bytes <= budget_bytes;
    }
};

/// One format on one layout. Bytes are exact apart from pickles; times are estimates.
/// Source: state_dict.md §6 and §7.
CheckpointCost checkpoint_cost(const CheckpointQuestion& question, const CheckpointFormat& format);
/// Every format that the layout's runtime has.
std::vector<CheckpointCost> checkpoint_costs(const CheckpointQuestion& question);

/// The cheapest way to save that fits and that loads into any number of ranks; nullptr: none does.
const CheckpointCost* recommended_format(std::span<const CheckpointCost> costs, std::int64_t resident_bytes,
                                         std::int64_t budget_bytes);

/// Python that saves and loads so.
std::string checkpoint_code(const CheckpointFormat& format);

}  // namespace fsdplan
