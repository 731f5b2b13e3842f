#include "stored_checkpoint_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "base/quantity.hpp"

namespace fsdplan::cli {
namespace {

using Json = nlohmann::ordered_json;
using Out = std::back_insert_iterator<std::string>;

constexpr std::size_t most_listed = 8;  // of findings and files of one kind; the JSON has them all

std::string_view word(OptimizerKeys keys) {
    switch (keys) {
        case OptimizerKeys::none:
            return "none";
        case OptimizerKeys::by_name:
            return "by_name";
        case OptimizerKeys::by_position:
            return "by_position";
        case OptimizerKeys::by_flattened_name:
            return "by_flattened_name";
    }
    return "";
}

std::string_view word(SavedAs saved_as) {
    switch (saved_as) {
        case SavedAs::plain:
            return "plain";
        case SavedAs::dtensor:
            return "DTensor";
        case SavedAs::sharded_tensor:
            return "ShardedTensor";
    }
    return "";
}

std::string_view explained(OptimizerKeys keys) {
    switch (keys) {
        case OptimizerKeys::none:
            return "none";
        case OptimizerKeys::by_name:
            return "filed under names of parameters, whatever the wrap plan";
        case OptimizerKeys::by_position:
            return "filed under positions of parameters: for the same program, plan and ranks only";
        case OptimizerKeys::by_flattened_name:
            return "filed under names of parameters, flattened (flatten_optimizer_state_dict)";
    }
    return "";
}

/// Names may hold any character.
std::string shown(std::string_view text) {
    const std::string quoted = json::quote(text);
    return quoted.size() == text.size() + 2 ? std::string(text) : quoted;
}

std::string sizes(const std::vector<std::int64_t>& values) {
    return fmt::format("[{}]", fmt::join(values, ", "));
}

void print_totals(std::string_view label, const SavedTotals& totals, Out out) {
    fmt::format_to(out, "{:<16} {} elements in {} tensors ({})\n", label, show_integer(totals.numel),
                   totals.tensors, show_bytes(totals.bytes.count));
}

void print_files(const StoredCheckpoint& checkpoint, Out out) {
    std::map<int, std::int64_t> of_rank;
    std::size_t listed = 0;
    for (const SavedFile& file : checkpoint.files) {
        if (file.rank >= 0 && !file.is_foreign) {
            of_rank[file.rank] += file.bytes;
        }
        if (++listed > most_listed) {
            continue;
        }
        fmt::format_to(out, "  {:<40} {:>18}{}\n", shown(file.name), show_integer(file.bytes),
                       !file.is_present  ? "  missing"
                       : file.is_foreign ? "  foreign"
                                         : "");
    }
    if (listed > most_listed) {
        fmt::format_to(out, "  … {} more\n", listed - most_listed);
    }
    if (of_rank.size() > 1) {
        const auto [least, most] =
            std::ranges::minmax_element(of_rank, {}, [](const auto& entry) { return entry.second; });
        fmt::format_to(out, "{:<16} {} (rank {}) to {} (rank {}) bytes\n", "written per rank",
                       show_integer(least->second), least->first, show_integer(most->second), most->first);
    }
}

void print_tensors(const StoredCheckpoint& checkpoint, Out out) {
    for (const SavedTensor& tensor : checkpoint.tensors) {
        fmt::format_to(out, "  {} {} {}", shown(tensor.name), name(tensor.dtype), sizes(tensor.shape));
        if (tensor.saved_as != SavedAs::plain) {
            fmt::format_to(out, " {}", word(tensor.saved_as));
        }
        if (!tensor.placements.empty()) {
            fmt::format_to(out, " {} on mesh {}", fmt::join(tensor.placements, ", "), sizes(tensor.mesh));
        }
        if (tensor.chunks.size() != 1) {
            fmt::format_to(out, " in {} pieces", tensor.chunks.size());
        }
        fmt::format_to(out, "\n");
    }
}

void print(const StoredCheckpoint& checkpoint, bool tensors, Out out) {
    fmt::format_to(out, "{:<16} {}{}\n", "format", name(checkpoint.format),
                   checkpoint.ranks > 0 ? fmt::format(", written by {} ranks", checkpoint.ranks) : "");
    print_totals("model", checkpoint.model(), out);
    print_totals("optimizer state", checkpoint.optimizer_state(), out);
    if (checkpoint.optimizer != OptimizerKeys::none) {
        fmt::format_to(out, "{:<16} {}\n", "", explained(checkpoint.optimizer));
    }
    fmt::format_to(out, "{:<16} {} bytes in files, {} of them elements\n", "stored",
                   show_integer(checkpoint.in_files().count), show_integer(checkpoint.stored().count));
    if (!checkpoint.other_values.empty()) {
        fmt::format_to(out, "{:<16} {}\n", "other values", checkpoint.other_values.size());
    }
    if (!checkpoint.files.empty()) {
        fmt::format_to(out, "files\n");
        print_files(checkpoint, out);
    }
    if (tensors && !checkpoint.tensors.empty()) {
        fmt::format_to(out, "tensors\n");
        print_tensors(checkpoint, out);
    }
    for (std::size_t i = 0; i < checkpoint.findings.size() && i < most_listed; ++i) {
        const CheckpointFinding& finding = checkpoint.findings[i];
        fmt::format_to(out, "{}: {}: {}\n", finding.is_fault ? "fault" : "note", shown(finding.where),
                       finding.message);
    }
    if (checkpoint.findings.size() > most_listed) {
        fmt::format_to(out, "… {} more\n", checkpoint.findings.size() - most_listed);
    }
    for (const StoredCheckpoint& part : checkpoint.parts) {
        fmt::format_to(out, "\n{}\n", shown(part.path));
        print(part, tensors, out);
    }
}

Json totals_json(const SavedTotals& totals) {
    return {{"tensors", totals.tensors}, {"numel", totals.numel}, {"bytes", totals.bytes.count}};
}

Json chunk_json(const SavedChunk& chunk, const StoredCheckpoint& checkpoint) {
    const SavedFile& file = checkpoint.files[chunk.file];
    Json out = {{"offset", chunk.offset}, {"shape", chunk.shape},       {"file", file.name},
                {"rank", file.rank},      {"position", chunk.position}, {"bytes", chunk.bytes}};
    if (file.rank < 0) {
        out["rank"] = nullptr;
    }
    if (!chunk.storage.empty()) {
        out["storage"] = chunk.storage;
        out["storage_offset"] = chunk.storage_offset;
        out["stride"] = chunk.stride;
    }
    return out;
}

Json tensor_json(const SavedTensor& tensor, const StoredCheckpoint& checkpoint) {
    Json out = {{"name", tensor.name},
                {"dtype", name(tensor.dtype)},
                {"shape", tensor.shape},
                {"saved_as", word(tensor.saved_as)},
                {"optimizer_state", tensor.is_optimizer_state}};
    if (tensor.saved_as == SavedAs::dtensor) {
        out["mesh"] = tensor.mesh;
        out["placements"] = tensor.placements;
    }
    out["chunks"] = Json::array();
    for (const SavedChunk& chunk : tensor.chunks) {
        out["chunks"].push_back(chunk_json(chunk, checkpoint));
    }
    return out;
}

Json file_json(const SavedFile& file) {
    Json out = {{"name", file.name}, {"bytes", file.bytes}, {"rank", file.rank}};
    if (file.rank < 0) {
        out["rank"] = nullptr;
    }
    out["present"] = file.is_present;
    out["foreign"] = file.is_foreign;
    return out;
}

Json json_of(const StoredCheckpoint& checkpoint) {
    Json out;
    out["path"] = checkpoint.path;
    out["format"] = name(checkpoint.format);
    out["ranks"] = checkpoint.ranks;
    out["complete"] = checkpoint.is_complete();
    out["model"] = totals_json(checkpoint.model());
    out["optimizer_state"] = totals_json(checkpoint.optimizer_state());
    out["optimizer_keys"] = word(checkpoint.optimizer);
    out["stored_bytes"] = checkpoint.stored().count;
    out["file_bytes"] = checkpoint.in_files().count;
    out["files"] = Json::array();
    for (const SavedFile& file : checkpoint.files) {
        out["files"].push_back(file_json(file));
    }
    out["tensors"] = Json::array();
    for (const SavedTensor& tensor : checkpoint.tensors) {
        out["tensors"].push_back(tensor_json(tensor, checkpoint));
    }
    out["other_values"] = checkpoint.other_values;
    out["findings"] = Json::array();
    for (const CheckpointFinding& finding : checkpoint.findings) {
        out["findings"].push_back(
            {{"where", finding.where}, {"message", finding.message}, {"fault", finding.is_fault}});
    }
    out["parts"] = Json::array();
    for (const StoredCheckpoint& part : checkpoint.parts) {
        out["parts"].push_back(json_of(part));
    }
    return out;
}

}  // namespace

std::string checkpoint_text(const StoredCheckpoint& checkpoint, bool tensors) {
    std::string text = fmt::format("{}\n", shown(checkpoint.path));
    print(checkpoint, tensors, std::back_inserter(text));
    return text;
}

std::string checkpoint_json(const StoredCheckpoint& checkpoint) {
    return json_of(checkpoint).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fsdplan::cli
