#pragma once

#include <span>
#include <string_view>

namespace fsdplan::embedded {

/// A data file of the tree, compiled in by fsdplan_embed().
struct EmbeddedFile {
    std::string_view path;  ///< below the folder given to fsdplan_embed()
    std::string_view content;
};

/// models/nets: one config.json a folder, and names.json with the short names.
std::span<const EmbeddedFile> nets();

/// models/clusters: GPU and cluster descriptions.
std::span<const EmbeddedFile> clusters();

/// reports/template: the page, its style, and one script a section.
std::span<const EmbeddedFile> report_template();

}  // namespace fsdplan::embedded
