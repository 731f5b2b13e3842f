#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fsdplan/stored_checkpoint.hpp"

// One function for each kind of checkpoint; read_checkpoint() chooses. `shown` is how messages name it.
namespace fsdplan {

/// Whether a folder has files of DCP, .metadata or other ones.
bool is_dcp_folder(const std::filesystem::path& folder);
/// Throws Error(input) when only .metadata is missing.
StoredCheckpoint read_dcp_folder(const std::filesystem::path& folder, const std::string& shown);

/// A file of torch.save. `name` is its name in the list of files.
StoredCheckpoint read_torch_file(const std::filesystem::path& path, const std::string& shown,
                                 const std::string& name);

/// Files of torch.save of the ranks of one program, joined by the names of their tensors.
StoredCheckpoint read_rank_files(const std::filesystem::path& folder, const std::string& shown,
                                 const std::vector<std::string>& names);

/// Safetensors files in one folder: those that an index names, those of DCP, or all.
StoredCheckpoint read_safetensors_folder(const std::filesystem::path& folder, const std::string& shown);
StoredCheckpoint read_safetensors_file(const std::filesystem::path& path, const std::string& shown);
StoredCheckpoint read_safetensors_index(const std::filesystem::path& path, const std::string& shown);

/// A folder of accelerate or Trainer. Throws Error(input) when nothing in it is a model or an optimizer.
StoredCheckpoint read_accelerate_folder(const std::filesystem::path& folder, const std::string& shown);

/// Names of the regular files of a folder, sorted; throws Error(input) when it cannot be read.
std::vector<std::string> files_in(const std::filesystem::path& folder);

}  // namespace fsdplan
