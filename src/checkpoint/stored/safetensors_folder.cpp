#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/file.hpp"
#include "base/file_name.hpp"
#include "base/json.hpp"
#include "checkpoint/stored/rank_name.hpp"
#include "checkpoint/stored/readers.hpp"
#include "checkpoint/stored/tiling.hpp"
#include "model/safetensors_header.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view sharding_key = "DCP_SHARDING_INFO";
constexpr std::string_view shards_folder = "sharded";  // pieces of the ranks beside consolidated files

std::optional<std::string> sharding_info(const SafetensorsHeader& header) {
    const auto found =
        std::ranges::find(header.metadata, sharding_key, &std::pair<std::string, std::string>::first);
    return found == header.metadata.end() ? std::nullopt : std::optional(found->second);
}

/// Where the tensors of one file begin in the whole ones: JSON inside of a JSON string.
std::map<std::string, std::vector<std::int64_t>, std::less<>> saved_offsets(const std::string& info,
                                                                            const std::string& shown) {
    std::map<std::string, std::vector<std::int64_t>, std::less<>> out;
    const json::Document document(info, shown + " header " + std::string(sharding_key));
    for (const json::Value entry : document.root().members()) {
        std::vector<std::int64_t>& offset = out[std::string(entry.key())];
        for (const json::Value element : entry.at("saved_offsets").elements()) {
            offset.push_back(element.integer(0, largest_total));
        }
    }
    return out;
}

class Reader {
public:
    Reader(const std::filesystem::path& folder, const std::string& shown) : folder_(folder) {
        out_.path = shown;
        out_.format = CheckpointFormat::safetensors;
    }

    /// Adds a file of the folder and its tensors.
    void add(const std::string& name) {
        const std::string shown = (folder_ / name).string();
        SafetensorsHeader header = read_safetensors_header(folder_ / name, shown);
        const std::optional<std::string> info = sharding_info(header);
        const auto offsets = info ? saved_offsets(*info, shown) : decltype(saved_offsets("", ""))();
        SavedFile file{.name = name, .bytes = static_cast<std::int64_t>(size_of_file(folder_ / name))};
        if (info) {
            out_.format = CheckpointFormat::dcp_safetensors;
            file.rank = rank_of_shard(name);
            out_.ranks = std::max(out_.ranks, file.rank + 1);
        }
        for (const StoredTensor& stored : header.tensors) {
            const auto offset = offsets.find(stored.name);
            add(stored, header.data_begin, offset == offsets.end() ? nullptr : &offset->second, shown);
        }
        if (header.present < header.declared) {
            out_.findings.push_back({name, "has only its header, no data", true});
        }
        out_.files.push_back(std::move(file));
    }

    void find(std::string where, std::string message, bool is_fault) {
        out_.findings.push_back({std::move(where), std::move(message), is_fault});
    }
    void add_absent(std::string name) {
        SavedFile file;
        file.name = std::move(name);
        file.is_present = false;
        out_.files.push_back(std::move(file));
    }
    /// A file that is of the checkpoint and holds no tensors.
    void add_index(const std::string& name) {
        out_.files.push_back(
            {.name = name, .bytes = static_cast<std::int64_t>(size_of_file(folder_ / name))});
    }

    void add_foreign(const std::string& name) {
        add_index(name);
        out_.files.back().is_foreign = true;
        find(name, "is not of this checkpoint", false);
    }

    /// Name of the file that holds a tensor; empty when none does.
    std::string_view file_of(std::string_view tensor) const {
        const auto found = tensors_.find(tensor);
        return found == tensors_.end()
                   ? std::string_view()
                   : std::string_view(out_.files[out_.tensors[found->second].chunks.front().file].name);
    }
    const std::vector<SavedTensor>& tensors() const { return out_.tensors; }

    StoredCheckpoint finish() {
        for (const SavedTensor& tensor : out_.tensors) {
            if (const auto fault = tiling_fault(tensor)) {
                find(tensor.name, *fault, true);
            }
        }
        std::error_code ignored;
        if (std::filesystem::is_directory(folder_ / shards_folder, ignored)) {
            find(std::string(shards_folder),
                 "a folder with the ranks' pieces, listed when it is named itself", false);
        }
        return std::move(out_);
    }

private:
    void add(const StoredTensor& stored, std::int64_t data_begin, const std::vector<std::int64_t>* offset,
             const std::string& shown) {
        const auto [place, is_new] = tensors_.emplace(stored.name, out_.tensors.size());
        if (is_new) {
            out_.tensors.emplace_back();
            out_.tensors.back().name = stored.name;
            out_.tensors.back().dtype = stored.tensor.dtype;
            out_.tensors.back().shape.assign(stored.tensor.shape.size(), 0);
        }
        SavedTensor& tensor = out_.tensors[place->second];
        const auto fail = [&](const std::string& message) {
            throw Error(ErrorKind::input, shown, "tensor " + json::quote(stored.name) + ": " + message);
        };
        if (!is_new && !offset) {
            fail("is in " + json::quote(file_of(stored.name)) + " too");
        }
        if (tensor.dtype != stored.tensor.dtype || tensor.shape.size() != stored.tensor.shape.size()) {
            fail("has another dtype or number of dimensions in " + json::quote(file_of(stored.name)));
        }
        if (offset && offset->size() != tensor.shape.size()) {
            fail(std::to_string(offset->size()) + " saved_offsets for " +
                 std::to_string(tensor.shape.size()) + " dimensions");
        }
        SavedChunk chunk;
        chunk.shape = stored.tensor.shape;
        chunk.offset = offset ? *offset : std::vector<std::int64_t>(chunk.shape.size(), 0);
        chunk.file = out_.files.size();
        chunk.position = data_begin + stored.begin;
        chunk.bytes = bytes_of(stored.tensor.numel, tensor.dtype).count;
        std::int64_t numel = 1;
        for (std::size_t d = 0; d < chunk.shape.size(); ++d) {
            const std::int64_t end = checked_add(chunk.offset[d], chunk.shape[d], shown);
            tensor.shape[d] = std::max(tensor.shape[d], end);
            numel = checked_mul(numel, tensor.shape[d], shown);
        }
        checked_mul(numel, bits(tensor.dtype), shown);
        tensor.chunks.push_back(std::move(chunk));
    }

    std::filesystem::path folder_;
    std::map<std::string, std::size_t, std::less<>> tensors_;  // index into out_.tensors
    StoredCheckpoint out_;
};

bool is_safetensors(const std::string& name) {
    return name.ends_with(".safetensors");
}

/// What a weight_map says: names of tensors and of their files.
std::map<std::string_view, std::string_view> placement_of(json::Value weight_map) {
    std::map<std::string_view, std::string_view> out;
    for (const json::Value entry : weight_map.members()) {
        if (!is_plain_file_name(entry.string())) {
            entry.fail("the plain name of a file in the same folder");
        }
        out.emplace(entry.key(), entry.string());
    }
    return out;
}

/// Reads what an index speaks of; what it and the files do not agree on is a fault of loading.
StoredCheckpoint read_index(const std::filesystem::path& path, const std::string& shown) {
    const std::filesystem::path folder = path.parent_path();
    const json::Document document(read_text(path), path.string());
    const auto placement = placement_of(document.root().at("weight_map"));
    std::set<std::string, std::less<>> files;
    for (const auto& [tensor, file] : placement) {
        files.emplace(file);
    }
    Reader reader(folder, shown);
    reader.add_index(path.filename().string());
    std::set<std::string_view> absent;
    for (const std::string& file : files) {
        std::error_code ignored;
        if (std::filesystem::is_regular_file(folder / file, ignored)) {
            reader.add(file);
        } else {
            reader.add_absent(file);
            reader.find(file, "is not there; the index speaks of it", true);
            absent.insert(file);
        }
    }
    for (const auto& [tensor, file] : placement) {
        if (reader.file_of(tensor) != file && !absent.contains(file)) {
            reader.find(std::string(tensor), "is not in " + json::quote(file), true);
        }
    }
    for (const SavedTensor& tensor : reader.tensors()) {
        const auto placed = placement.find(tensor.name);
        if (placed == placement.end() || placed->second != reader.file_of(tensor.name)) {
            reader.find(
                tensor.name,
                "is in " + json::quote(reader.file_of(tensor.name)) + ", where the index does not place it",
                true);
        }
    }
    for (const std::string& name : files_in(folder)) {
        if (is_safetensors(name) && !files.contains(name)) {
            reader.add_foreign(name);
        }
    }
    return reader.finish();
}

}  // namespace

StoredCheckpoint read_safetensors_index(const std::filesystem::path& path, const std::string& shown) {
    return read_index(path, shown);
}

StoredCheckpoint read_safetensors_file(const std::filesystem::path& path, const std::string& shown) {
    Reader reader(path.parent_path(), shown);
    reader.add(path.filename().string());
    return reader.finish();
}

StoredCheckpoint read_safetensors_folder(const std::filesystem::path& folder, const std::string& shown) {
    const std::vector<std::string> names = files_in(folder);
    const auto index = std::ranges::find_if(
        names, [](const std::string& name) { return name.ends_with(".safetensors.index.json"); });
    if (index != names.end()) {
        return read_index(folder / *index, shown);
    }
    Reader reader(folder, shown);
    for (const std::string& name : names) {
        if (is_safetensors(name)) {
            reader.add(name);
        }
    }
    return reader.finish();
}

}  // namespace fsdplan
