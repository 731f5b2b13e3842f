#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/model.hpp"

// Reads what a checkpoint on disk holds: names, dtypes, shapes, pieces and files. Only headers and metadata
// are read, never the elements; pickles are read without running anything.
namespace fsdplan {

enum class CheckpointFormat : std::uint8_t {
    dcp,               ///< a folder of torch.distributed.checkpoint, with .metadata
    dcp_safetensors,   ///< safetensors files of the ranks of one save, with DCP_SHARDING_INFO
    torch_save,        ///< one file of torch.save
    torch_save_ranks,  ///< a folder with such a file of each rank
    safetensors,       ///< one file, or the files of an index or a folder
    accelerate,        ///< a folder of accelerate or Trainer, made of the others: see `parts`
};

/// "DCP", "torch.save", …
std::string_view name(CheckpointFormat format);

/// How the program that wrote a tensor held it. DCP stores only the tensor: there it is always plain.
enum class SavedAs : std::uint8_t { plain, dtensor, sharded_tensor };

/// What the states of an optimizer are filed under.
enum class OptimizerKeys : std::uint8_t {
    none,               ///< no optimizer state is here
    by_name,            ///< names of parameters, whatever the wrap plan
    by_position,        ///< place in the list of parameters, as optimizer.state_dict() does
    by_flattened_name,  ///< names of parameters and states in one word (flatten_optimizer_state_dict)
};

struct SavedFile {
    std::string name;  ///< relative to the checkpoint's folder; of a single file its own name
    std::int64_t bytes = 0;
    int rank = -1;            ///< that wrote it; -1: its name does not say
    bool is_present = true;   ///< false: the checkpoint speaks of it, but it is not there
    bool is_foreign = false;  ///< true: the checkpoint does not speak of it
};

/// A box of a tensor and where it is.
struct SavedChunk {
    std::vector<std::int64_t> offset;  ///< in the tensor, one a dimension; empty: not known, or a scalar
    std::vector<std::int64_t> shape;   ///< as many; a dimension may be 0
    std::size_t file = 0;              ///< index into StoredCheckpoint::files
    std::int64_t position = 0;         ///< byte of the file: of the item (DCP), storage or data
    std::int64_t bytes = 0;            ///< of these
    // Of torch.save: several tensors may look at one storage.
    std::string storage;               ///< its key; empty: of another format
    std::int64_t storage_offset = 0;   ///< elements before the first one
    std::vector<std::int64_t> stride;  ///< in elements, one a dimension

    std::int64_t numel() const;
};

struct SavedTensor {
    std::string name;  ///< keys joined by dots; may hold any character
    DType dtype = DType::float32;
    std::vector<std::int64_t> shape;  ///< of the whole tensor, not of a rank's piece
    SavedAs saved_as = SavedAs::plain;
    std::vector<std::int64_t> mesh;       ///< of a DTensor: ranks along each dimension
    std::vector<std::string> placements;  ///< of a DTensor, one a dimension of the mesh: "Shard(0)"
    bool is_optimizer_state = false;
    std::vector<SavedChunk> chunks;

    std::int64_t numel() const;
    Bytes bytes() const;
};

/// What is odd about a checkpoint that can be listed all the same.
struct CheckpointFinding {
    std::string where;  ///< file, or tensor
    std::string message;
    bool is_fault = false;  ///< true: loading would fail or leave something out
};

struct SavedTotals {
    std::int64_t tensors = 0;
    std::int64_t numel = 0;
    Bytes bytes;
};

struct StoredCheckpoint {
    std::string path;  ///< as given; of a part relative to it
    CheckpointFormat format = CheckpointFormat::torch_save;
    std::vector<SavedFile> files;           ///< by name
    std::vector<SavedTensor> tensors;       ///< in the order of the file
    std::vector<std::string> other_values;  ///< names of what is no tensor
    OptimizerKeys optimizer = OptimizerKeys::none;
    int ranks = 0;                        ///< that wrote it, as far as names and values tell; 0: unknown
    std::vector<StoredCheckpoint> parts;  ///< of accelerate: model, optimizer
    std::vector<CheckpointFinding> findings;

    // Over all parts.
    SavedTotals model() const;            ///< whole tensors that are no optimizer state
    SavedTotals optimizer_state() const;  ///< the other ones
    Bytes stored() const;                 ///< elements in the files, a storage once
    Bytes in_files() const;               ///< sizes of the files, foreign ones not
    bool is_complete() const;             ///< no finding is a fault
};

/// Reads a DCP folder, a torch.save file, a folder of them, safetensors files or a folder of accelerate.
///
/// Throws Error(input) with file and byte or JSON pointer for what is no checkpoint, is damaged or
/// contradicts itself. Files that are missing, too short or foreign are findings.
StoredCheckpoint read_checkpoint(const std::string& path);

/// Whether this looks like a checkpoint of another kind than safetensors, which import_model() reads too.
bool is_checkpoint(const std::filesystem::path& path);

// Bytes that a save writes, exact for torch 2.13 and safetensors 0.8.

/// What one tensor of an item or file says of itself.
struct TensorEntry {
    std::string name;
    DType dtype = DType::float32;
    std::vector<std::int64_t> shape;
};

/// One contiguous piece of a tensor as an item of a .distcp file: an archive of torch.save of its own. Each
/// rank's file is the sum of its items.
std::int64_t dcp_item_bytes(DType dtype, std::span<const std::int64_t> shape);

/// A file of safetensors' save_file: the padded header and the data. `metadata`: names and texts, in the
/// order given.
std::int64_t safetensors_file_bytes(std::span<const TensorEntry> tensors,
                                    std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace fsdplan
