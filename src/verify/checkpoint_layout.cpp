#include "verify/checkpoint_layout.hpp"

#include <set>
#include <vector>

#include "base/file.hpp"
#include "base/pickle.hpp"
#include "checkpoint/stored/dcp_metadata.hpp"
#include "checkpoint/stored/tiling.hpp"
#include "checkpoint/stored/torch_file.hpp"
#include "checkpoint/stored/zip_archive.hpp"
#include "model/safetensors_header.hpp"

namespace fsdplan {
namespace {

std::string sizes(json::Value list) {
    std::vector<std::int64_t> out;
    for (const json::Value size : list.elements()) {
        out.push_back(size.integer());
    }
    return shown_sizes(out);
}

std::string text(std::int64_t value) {
    return std::to_string(value);
}

// --- as described ---------------------------------------------------------------------------------------

void describe_pickle(const std::string& name, json::Value pickle, LayoutLines& out) {
    out[name + " protocol"] = text(pickle.at("protocol").integer());
    out[name + " bytes"] = text(pickle.at("bytes").integer());
    for (const json::Value global : pickle.at("globals").elements()) {
        out[name + " name " + std::string(global.string())] = "used";
    }
}

void describe_dcp(json::Value dcp, LayoutLines& out) {
    for (const json::Value file : dcp.at("files").members()) {
        out["file " + std::string(file.key())] = text(file.integer());
    }
    out["version"] = dcp.at("version").string();
    for (const json::Value tensor : dcp.at("tensors").members()) {
        std::string& line = out["tensor " + std::string(tensor.key())];
        line = std::string(tensor.at("dtype").string()) + " " + sizes(tensor.at("size"));
        for (const json::Value chunk : tensor.at("chunks").elements()) {
            line += " " + sizes(chunk.at("offsets")) + "+" + sizes(chunk.at("sizes"));
        }
    }
    for (const json::Value name : dcp.at("byte_entries").elements()) {
        out["value " + std::string(name.string())] = "no tensor";
    }
    for (const json::Value record : dcp.at("storage").elements()) {
        const json::Value offset = record.at("offset");
        out["item " + std::string(record.at("fqn").string()) +
            (offset.is_null() ? "" : " " + sizes(offset))] = std::string(record.at("file").string()) + " " +
                                                             text(record.at("at").integer()) + " " +
                                                             text(record.at("length").integer());
    }
    for (const json::Value path : dcp.at("planner_paths").members()) {
        std::string& line = out["path " + std::string(path.key())];
        for (const json::Value key : path.elements()) {
            line += (line.empty() ? "" : " / ") +
                    (key.is_integer() ? text(key.integer()) : std::string(key.string()));
        }
    }
    if (const auto pickle = dcp.find("pickle")) {
        describe_pickle("pickle", *pickle, out);
    }
}

void describe_torch_file(json::Value file, LayoutLines& out) {
    const std::string name(file.key());
    out["file " + name] = text(file.at("bytes").integer());
    for (const json::Value entry : file.at("entries").elements()) {
        out[name + " member " + std::string(entry.at("name").string())] =
            text(entry.at("size").integer()) + " at " + text(entry.at("payload_offset").integer());
    }
    if (const auto pickle = file.find("pickle")) {
        describe_pickle(name + " pickle", *pickle, out);
    }
}

void describe_safetensors(json::Value file, LayoutLines& out) {
    const std::string name(file.key());
    out["file " + name] = text(file.at("bytes").integer());
    out[name + " header"] = text(file.at("header_bytes").integer());
    for (const json::Value entry : file.at("header").members()) {
        if (entry.key() == "__metadata__") {
            for (const json::Value value : entry.members()) {
                out[name + " metadata " + std::string(value.key())] = value.string();
            }
        } else {
            out[name + " tensor " + std::string(entry.key())] =
                std::string(entry.at("dtype").string()) + " " + sizes(entry.at("shape")) + " at " +
                text((*entry.at("data_offsets").elements().begin()).integer());
        }
    }
}

// --- as found -------------------------------------------------------------------------------------------

void find_pickle(const std::string& name, const pickle::Document& document, std::int64_t bytes,
                 LayoutLines& out) {
    out[name + " protocol"] = text(document.protocol());
    out[name + " bytes"] = text(bytes);
    for (const pickle::Value& global : document.all(pickle::Type::name)) {
        out[name + " name " + global.name()] = "used";
    }
}

void find_dcp(const std::filesystem::path& folder, bool with_pickle, LayoutLines& out) {
    const StoredCheckpoint checkpoint = read_checkpoint(folder.string());
    std::string bytes = read_file(folder / ".metadata");
    const auto size = static_cast<std::int64_t>(bytes.size());
    const pickle::Document document(std::move(bytes), ".metadata", pickle::Content::calls);
    const DcpMetadata metadata = read_dcp_metadata(document);
    for (const SavedFile& file : checkpoint.files) {
        out["file " + file.name] = text(file.bytes);
    }
    out["version"] = metadata.version;
    for (const SavedTensor& tensor : checkpoint.tensors) {
        std::string& line = out["tensor " + tensor.name];
        line = std::string(name(tensor.dtype)) + " " + shown_sizes(tensor.shape);
        for (const SavedChunk& chunk : tensor.chunks) {
            line += " " + shown_sizes(chunk.offset) + "+" + shown_sizes(chunk.shape);
            out["item " + tensor.name + " " + shown_sizes(chunk.offset)] =
                checkpoint.files[chunk.file].name + " " + text(chunk.position) + " " + text(chunk.bytes);
            // Without trusting the metadata: the item is an archive of its own.
            read_torch_archive(folder / checkpoint.files[chunk.file].name, tensor.name,
                               {.begin = chunk.position, .bytes = chunk.bytes});
        }
    }
    for (const std::string& value : checkpoint.other_values) {
        out["value " + value] = "no tensor";
    }
    for (const DcpItem& item : metadata.items) {
        if (!item.is_chunk) {
            out["item " + std::string(item.tensor)] =
                std::string(item.file) + " " + text(item.position) + " " + text(item.bytes);
        }
    }
    for (std::size_t i = 0; i < metadata.paths.size(); ++i) {
        const std::size_t tensors = checkpoint.tensors.size();
        std::string& line =
            out["path " + (i < tensors ? checkpoint.tensors[i].name : checkpoint.other_values[i - tensors])];
        for (const std::string_view key : metadata.paths[i]) {
            line += (line.empty() ? "" : " / ") + std::string(key);
        }
    }
    if (with_pickle) {
        find_pickle("pickle", document, size, out);
    }
}

void find_torch_file(const std::filesystem::path& folder, const std::string& name, bool with_pickle,
                     LayoutLines& out) {
    const std::filesystem::path path = folder / name;
    const auto size = static_cast<std::int64_t>(size_of_file(path));
    out["file " + name] = text(size);
    for (const ZipMember& member : read_zip_directory(path, name)) {
        out[name + " member " + member.name] = text(member.bytes) + " at " + text(member.position);
    }
    if (!with_pickle) {
        return;
    }
    TorchPickle archive = read_torch_archive(path, name, {.bytes = size});
    const auto bytes = static_cast<std::int64_t>(archive.bytes.size());
    const pickle::Document document(std::move(archive.bytes), name, pickle::Content::calls);
    find_pickle(name + " pickle", document, bytes, out);
}

void find_safetensors(const std::filesystem::path& folder, const std::string& name, LayoutLines& out) {
    const SafetensorsHeader header = read_safetensors_header(folder / name, name);
    out["file " + name] = text(static_cast<std::int64_t>(size_of_file(folder / name)));
    constexpr std::int64_t length = 8;
    out[name + " header"] = text(header.data_begin - length);
    for (const auto& [key, value] : header.metadata) {
        out[name + " metadata " + key] = value;
    }
    for (const StoredTensor& stored : header.tensors) {
        out[name + " tensor " + stored.name] = std::string(safetensors_dtype(stored.tensor.dtype).name) +
                                               " " + shown_sizes(stored.tensor.shape) + " at " +
                                               text(stored.begin);
    }
}

}  // namespace

LayoutLines described_lines(json::Value item) {
    LayoutLines out;
    for_each_part(
        item, [&](json::Value dcp) { describe_dcp(dcp, out); },
        [&](json::Value file) { describe_torch_file(file, out); },
        [&](json::Value file) { describe_safetensors(file, out); });
    return out;
}

LayoutLines found_lines(json::Value item, const std::filesystem::path& folder) {
    LayoutLines out;
    if (const auto dcp = item.find("dcp")) {
        find_dcp(folder, dcp->find("pickle").has_value(), out);
    }
    if (const auto files = item.find("torch_files")) {
        for (const json::Value file : files->members()) {
            find_torch_file(folder, std::string(file.key()), file.find("pickle").has_value(), out);
        }
    }
    if (const auto files = item.find("safetensors_files")) {
        for (const json::Value file : files->members()) {
            find_safetensors(folder, std::string(file.key()), out);
        }
    }
    return out;
}

void compare_lines(const LayoutLines& described, const LayoutLines& found, CaseReport& report) {
    for (const auto& [what, line] : described) {
        const auto same = found.find(what);
        report.compare(what, line, same == found.end() ? "nothing" : same->second);
    }
    for (const auto& [what, line] : found) {
        if (!described.contains(what)) {
            report.compare(what, "nothing", line);
        }
    }
}

}  // namespace fsdplan
