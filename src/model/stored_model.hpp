#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"
#include "model/safetensors_header.hpp"

namespace fsdplan {

/// The model that a checkpoint's tensors belong to: the one of the config.json in `folder`, checked against
/// the tensors, or else a tree rebuilt from their names. `shown` becomes its name.
ModelGraph stored_model(std::vector<StoredTensor> tensors, const std::filesystem::path& folder,
                        const std::string& shown, const ImportOptions& options);

/// Modules from names split at their dots: "layers.10.w" is the parameter w of child 10 of layers.
///
/// Classes are plain Module; ModuleList where all children are numbers, which then come in numeric order; and
/// for the members of a list the list's name with "_member".
/// Names that no attribute path can have (empty parts, more than 64 of them) stay whole, at the root.
ModelGraph tree_from_names(std::vector<StoredTensor> tensors);

/// Checks tensors against the model that a config.json describes, and gives the model's tensors the stored
/// dtypes. Throws Error(input) at `shown` when shapes differ; other differences become notes.
void match_checkpoint(std::span<const StoredTensor> tensors, const std::string& shown,
                      const ImportOptions& options, ModelGraph& graph);

/// A note on data that a header describes and its file lacks; nothing when they are all there.
void note_missing_data(std::size_t tensors, Bytes declared, Bytes present, ModelGraph& graph);

/// `3 tensors ("a", "b", …)`: how many, and the first three.
std::string counted(std::span<const std::string> names, std::string_view what);

}  // namespace fsdplan
