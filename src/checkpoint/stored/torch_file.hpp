#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/stored/zip_archive.hpp"
#include "fsdplan/stored_checkpoint.hpp"

namespace fsdplan {

/// Whether the first bytes are those of an archive of torch.save, or of its format before 1.6.
bool is_torch_file(const std::filesystem::path& path);

/// The pickle of such an archive, a member as torch.save names it.
struct TorchPickle {
    std::string folder;                                      ///< that all members are in: "full/"
    std::string bytes;                                       ///< of data.pkl
    std::map<std::string, ZipMember, std::less<>> storages;  ///< by key
};

/// Throws Error(input) with the byte for what is no such archive. `range`: the part of the file that is one.
TorchPickle read_torch_archive(const std::filesystem::path& path, const std::string& shown, FileRange range);

}  // namespace fsdplan
