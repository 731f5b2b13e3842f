#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/json.hpp"
#include "verify/case_report.hpp"

// What a recorded checkpoint holds, as lines that can be compared: from its description, and as our reader
// finds it in the files.
namespace fsdplan {

/// By what is described: "tensor model.gain" has "float32 [3]: [0]+[2], [2]+[1]".
using LayoutLines = std::map<std::string, std::string>;

LayoutLines described_lines(json::Value item);
/// `folder` has the item's files.
LayoutLines found_lines(json::Value item, const std::filesystem::path& folder);

/// Calls one of these for each part of an item.
template <typename Dcp, typename TorchFile, typename Safetensors>
void for_each_part(json::Value item, const Dcp& dcp, const TorchFile& torch_file,
                   const Safetensors& safetensors) {
    if (const auto found = item.find("dcp")) {
        dcp(*found);
    }
    if (const auto files = item.find("torch_files")) {
        for (const json::Value file : files->members()) {
            torch_file(file);
        }
    }
    if (const auto files = item.find("safetensors_files")) {
        for (const json::Value file : files->members()) {
            safetensors(file);
        }
    }
}

void compare_lines(const LayoutLines& described, const LayoutLines& found, CaseReport& report);

/// Whether sizes and positions in the description follow from shapes and dtypes, as PyTorch writes them.
void check_rules(json::Value item, CaseReport& report);

}  // namespace fsdplan
