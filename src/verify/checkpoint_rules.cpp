#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "checkpoint/stored/tiling.hpp"
#include "checkpoint/stored/torch_archive.hpp"
#include "fsdplan/stored_checkpoint.hpp"
#include "model/safetensors_header.hpp"
#include "verify/checkpoint_layout.hpp"

namespace fsdplan {
namespace {

std::vector<std::int64_t> integers(json::Value list) {
    std::vector<std::int64_t> out;
    for (const json::Value value : list.elements()) {
        out.push_back(value.integer(0, largest_total));
    }
    return out;
}

std::string text(std::int64_t value) {
    return std::to_string(value);
}

DType described_dtype(json::Value value) {
    const std::optional<DType> dtype = dtype_from_name(value.string());
    if (!dtype) {
        value.fail("a dtype of torch");
    }
    return *dtype;
}

SavedTensor described_tensor(json::Value tensor) {
    SavedTensor out;
    out.name = tensor.key();
    out.dtype = described_dtype(tensor.at("dtype"));
    out.shape = integers(tensor.at("size"));
    for (const json::Value chunk : tensor.at("chunks").elements()) {
        out.chunks.emplace_back();
        out.chunks.back().offset = integers(chunk.at("offsets"));
        out.chunks.back().shape = integers(chunk.at("sizes"));
    }
    return out;
}

/// The size of one item: exact for a tensor's chunk; a pickled value has one of a few.
void check_item(json::Value record, const std::map<std::string, SavedTensor, std::less<>>& tensors,
                CaseReport& report) {
    const std::string name(record.at("fqn").string());
    const std::int64_t length = record.at("length").integer(0, largest_total);
    const auto tensor = tensors.find(name);
    if (tensor == tensors.end()) {
        constexpr std::int64_t least = 1261;  // its pickle grows it in steps of the alignment
        report.compare("item " + name, "1261 and steps of 64",
                       length >= least && (length - least) % 64 == 0 ? "1261 and steps of 64" : text(length));
        return;
    }
    const std::vector<std::int64_t> offset = integers(record.at("offset"));
    const auto chunk = std::ranges::find(tensor->second.chunks, offset, &SavedChunk::offset);
    if (chunk == tensor->second.chunks.end()) {
        report.compare("item " + name + " " + shown_sizes(offset), "a chunk of the tensor", "none");
        return;
    }
    report.compare("item " + name + " " + shown_sizes(offset), text(length),
                   text(dcp_item_bytes(tensor->second.dtype, chunk->shape)));
}

/// Items follow each other without gaps, from the first byte of a file to its last.
void check_positions(json::Value dcp, CaseReport& report) {
    std::map<std::string, std::map<std::int64_t, std::int64_t>> items;  // per file: position and length
    for (const json::Value record : dcp.at("storage").elements()) {
        items[std::string(record.at("file").string())][record.at("at").integer(0, largest_total)] =
            record.at("length").integer(0, largest_total);
    }
    for (const auto& [file, places] : items) {
        std::int64_t end = 0;
        for (const auto& [position, length] : places) {
            report.compare(file + " position", text(position), text(end));
            end = position + length;
        }
        report.compare(file + " bytes", text(dcp.at("files").at(file).integer()), text(end));
    }
}

void check_dcp(json::Value dcp, CaseReport& report) {
    std::map<std::string, SavedTensor, std::less<>> tensors;
    std::size_t chunks = 0;
    for (const json::Value tensor : dcp.at("tensors").members()) {
        const SavedTensor& described = tensors.emplace(tensor.key(), described_tensor(tensor)).first->second;
        chunks += described.chunks.size();
        report.compare("chunks of " + described.name, "tile it", tiling_fault(described).value_or("tile it"));
    }
    for (const json::Value record : dcp.at("storage").elements()) {
        check_item(record, tensors, report);
    }
    report.compare("records", text(static_cast<std::int64_t>(dcp.at("storage").size())),
                   text(static_cast<std::int64_t>(chunks + dcp.at("byte_entries").size())));
    check_positions(dcp, report);
}

void check_torch_file(json::Value file, CaseReport& report) {
    TorchArchive archive;
    for (const json::Value entry : file.at("entries").elements()) {
        const std::string_view name = entry.at("name").string();
        const std::int64_t position = archive.add(name, entry.at("size").integer(0, largest_total));
        report.compare("position of " + std::string(name), text(entry.at("payload_offset").integer()),
                       text(position));
    }
    report.compare(std::string(file.key()) + " bytes", text(file.at("bytes").integer()),
                   text(archive.bytes()));
}

/// Size of a file that the library wrote; torch's own consolidation does not order tensors as it does.
void check_safetensors(json::Value file, CaseReport& report) {
    std::vector<TensorEntry> tensors;
    std::vector<std::pair<std::string, std::string>> metadata;
    std::vector<std::pair<std::size_t, std::string>> order;
    for (const json::Value entry : file.at("header").members()) {
        if (entry.key() == "__metadata__") {
            for (const json::Value value : entry.members()) {
                metadata.emplace_back(value.key(), value.string());
            }
            continue;
        }
        const std::optional<DType> dtype = dtype_of_safetensors(entry.at("dtype").string());
        if (!dtype) {
            entry.at("dtype").fail("a dtype of safetensors");
        }
        tensors.push_back({std::string(entry.key()), *dtype, integers(entry.at("shape"))});
        order.emplace_back(safetensors_dtype(*dtype).place, entry.key());
    }
    if (std::ranges::is_sorted(order)) {
        report.compare(std::string(file.key()) + " bytes", text(file.at("bytes").integer()),
                       text(safetensors_file_bytes(tensors, metadata)));
    }
}

}  // namespace

void check_rules(json::Value item, CaseReport& report) {
    for_each_part(
        item, [&](json::Value dcp) { check_dcp(dcp, report); },
        [&](json::Value file) { check_torch_file(file, report); },
        [&](json::Value file) { check_safetensors(file, report); });
}

}  // namespace fsdplan
