#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// What an importer is asked to read. Files are opened by the importer; `head` is for telling formats apart.
struct ImportSource {
    std::filesystem::path path;  ///< a regular file
    std::string shown;           ///< how messages name it
    std::string head;            ///< its first bytes (up to 4096), unpacked when the file is gzip
};

/// One file format. An entry is one file in src/model/builtin.
struct ImporterInfo {
    std::string_view name;  ///< "module-tree JSON", for messages
    std::string_view help;
    /// Whether the file looks like this format, by name or first bytes. At most one importer should say yes.
    bool (*recognises)(const ImportSource& source);
    ModelGraph (*read)(const ImportSource& source, const ImportOptions& options);
};

/// Reads a config.json's text; the library's models and the folder importer come through here.
ModelGraph read_hf_config(std::string_view text, const std::string& shown, const ImportOptions& options);

namespace builtin {
std::span<const ImporterInfo* const> importers();
}  // namespace builtin

}  // namespace fsdplan
