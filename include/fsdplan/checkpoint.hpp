#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"
#include "fsdplan/job.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"

// What state dicts of sharded models cost, as PyTorch 2.13 makes, saves and loads them.
namespace fsdplan {

/// A parameter or buffer as state dicts hold it.
struct StateTensor {
    std::vector<std::int64_t> shape;  ///< empty for a scalar
    DType dtype = DType::float32;
    bool trainable = true;  ///< has optimizer states
    bool is_buffer = false;

    std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
    std::int64_t numel() const;
    std::int64_t bytes() const { return bytes_of(numel(), dtype).count; }
    std::int64_t row_bytes() const;  ///< of one index of dimension 0
};

/// One name in a state dict; a tied parameter has several.
struct StateEntry {
    std::string name;
    std::size_t tensor = 0;  ///< index into StateLayout::tensors
};

/// A unit of FSDP1 that has parameters.
struct StateUnit {
    std::string path;                   ///< of its module; "" is the root
    std::int32_t parent = -1;           ///< index of the nearest enclosing unit
    std::vector<std::size_t> tensors;   ///< in the order of the flat parameter
    std::vector<std::size_t> entries;   ///< names under which the state dict has them
    std::vector<std::int64_t> offsets;  ///< of each tensor in the flat parameter, in elements
    std::int64_t aligned_numel = 0;     ///< with the gaps between parameters
    std::int64_t padded_numel = 0;      ///< as gathered
    std::int64_t shard_numel = 0;
    DType dtype = DType::float32;

    std::int64_t aligned_bytes() const { return bytes_of(aligned_numel, dtype).count; }
    std::int64_t padded_bytes() const { return bytes_of(padded_numel, dtype).count; }
    std::int64_t shard_bytes() const { return bytes_of(shard_numel, dtype).count; }
};

/// What the optimizer keeps for a parameter: tensors of its shape, and perhaps a step counter of 4 bytes.
struct OptimizerStates {
    std::vector<std::string> tensors;  ///< "exp_avg", …
    bool has_step = false;
    std::optional<DType> dtype;  ///< of the tensors; absent: the parameter's
    bool is_estimate = false;    ///< its states have other shapes; they are taken as one of the parameter's
    std::vector<std::string> group_keys;  ///< of a parameter group, without "params"
};
/// Of `--optimizer`; nothing is kept for one that keeps nothing.
OptimizerStates optimizer_states(const Optimizer& optimizer);

enum class StateRuntime : std::uint8_t { plain, fsdp1, fsdp2 };

/// A model under sharding, as far as state dicts depend on it.
struct StateLayout {
    StateRuntime runtime = StateRuntime::plain;
    Mesh mesh;
    bool sharded = false;      ///< false: every rank has all of it (NO_SHARD, one rank)
    bool device_mesh = false;  ///< FSDP1 was given one: pieces are DTensors
    bool use_orig_params = true;
    bool low_precision_buffers = false;  ///< FSDP1's mixed precision keeps buffers in another dtype
    /// Original parameters of which two units hold one: FSDP1 builds that and fails when it trains.
    bool tied_across_units = false;
    std::vector<StateTensor> tensors;  ///< distinct, parameters in the order of named_parameters()
    std::vector<StateEntry> entries;   ///< in the order of state_dict()
    std::vector<StateUnit> units;      ///< FSDP1: in pre-order
    OptimizerStates optimizer;

    std::int64_t shard_rank(std::int64_t rank) const { return sharded ? rank % mesh.shard : 0; }
    std::int64_t shard_ranks() const { return sharded ? mesh.shard : 1; }
    /// Rows of dimension 0 that a rank holds of a tensor that is cut by rows, and of the largest piece.
    std::int64_t rows(const StateTensor& tensor, std::int64_t rank) const;
    std::int64_t piece_rows(const StateTensor& tensor) const;
    std::int64_t piece_bytes(const StateTensor& tensor, std::int64_t rank) const;
    /// What a gather of the pieces leaves: all of them as large as the largest.
    std::int64_t padded_piece_bytes(const StateTensor& tensor) const;
    std::int64_t gathered_bytes(const StateTensor& tensor) const;
};

/// `plan` is the model's under the job (units_of). A runtime other than FSDP counts as the plain model that
/// it is: every rank has all of it. Throws Error(input) for more names than a state dict could have.
StateLayout state_layout(const ModelGraph& model, const WrapPlan& plan, const TrainingJob& job);

enum class StateOperation : std::uint8_t {
    all_gather,
    broadcast,
    scatter,
    all_reduce,
    object_all_gather,  ///< of pickled objects, whose size is not known
    object_broadcast,
    object_gather,
    object_scatter,
};
/// "all_gather", "object:all_gather_object", …: c10d's names
std::string_view name(StateOperation operation);

struct StateEvent {
    StateOperation operation{};
    std::int64_t input_bytes = 0;  ///< on this rank; 0 of objects
    std::int64_t output_bytes = 0;

    friend bool operator==(const StateEvent&, const StateEvent&) = default;
};

/// What is asked of state dicts.
struct StateRequest {
    enum class Subject : std::uint8_t { model, optimizer };
    enum class Direction : std::uint8_t { save, load };
    /// Which state dict: FSDP1's types, or those of the version-neutral API.
    enum class Form : std::uint8_t { full, sharded, local };
    Subject subject{};
    Direction direction{};
    Form form{};
    bool offload = false;     ///< offload_to_cpu, cpu_offload
    bool rank0_only = false;  ///< saving: the first rank keeps it; loading: it alone has it and broadcasts
};

/// One call on one rank. Bytes of memory are above those at its start.
struct StateCall {
    std::vector<StateEvent> events;
    std::int64_t device_peak_bytes = 0;
    std::int64_t device_kept_bytes = 0;  ///< while the returned state dict lives
    std::int64_t host_peak_bytes = 0;
    std::int64_t host_kept_bytes = 0;
    std::int64_t to_host_bytes = 0;  ///< copied over PCIe
    std::int64_t to_device_bytes = 0;
    std::int64_t returned_bytes = 0;  ///< tensors of this rank in what is returned
    std::int64_t returned_tensors = 0;

    bool sends_objects() const;
};

/// Where the parameters are. On the CPU (gloo) an offload is no copy, and a gather has one more copy of what
/// it gathers for a moment.
enum class StateDevice : std::uint8_t { gpu, cpu };

/// Plays one call of `state_dict`, `load_state_dict`, `optim_state_dict`, `optim_state_dict_to_load` or, with
/// FSDP2, of the version-neutral API. Exact but for what pickled objects take.
/// Source: state_dict.md §2-4, measured with PyTorch 2.13 on gloo.
StateCall state_call(const StateLayout& layout, const StateRequest& request, std::int64_t rank,
                     StateDevice device = StateDevice::gpu);

/// Why PyTorch refuses a call, in its own class and a word of ours that stays.
struct StateRefusal {
    std::string error_class;
    std::string code;
    std::string reason;
};
/// What stops a call on every rank, whatever is loaded.
std::optional<StateRefusal> state_refusal(const StateLayout& layout, const StateRequest& request);
/// What stops DCP's DefaultStager from copying a sharded state dict ahead.
std::optional<StateRefusal> staging_refusal(const StateLayout& layout);

/// The collectives of one dcp.save() or dcp.load().
std::vector<StateEvent> dcp_events(bool load);

/// A file of torch.distributed.checkpoint.
struct DcpFile {
    std::string name;  ///< "__0_0.distcp"
    std::int64_t bytes = 0;
};
struct DcpSave {
    std::vector<DcpFile> files;       ///< rank by rank
    std::int64_t chunks = 0;          ///< of tensors, in all files
    std::int64_t keys = 0;            ///< dotted names
    std::int64_t metadata_bytes = 0;  ///< about: it holds the path that was given
    std::int64_t largest_rank_items = 0;
};

/// What dcp.save() of the version-neutral API's model and optimizer state writes.
/// Source: state_dict.md §5.1.
DcpSave dcp_save(const StateLayout& layout, bool with_optimizer, int threads = 1);

}  // namespace fsdplan
