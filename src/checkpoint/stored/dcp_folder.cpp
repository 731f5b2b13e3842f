#include <algorithm>
#include <map>
#include <system_error>
#include <unordered_map>

#include "base/file.hpp"
#include "base/file_name.hpp"
#include "base/json.hpp"
#include "checkpoint/stored/dcp_metadata.hpp"
#include "checkpoint/stored/rank_name.hpp"
#include "checkpoint/stored/readers.hpp"
#include "checkpoint/stored/tiling.hpp"

namespace fsdplan {
namespace {

constexpr std::uintmax_t largest_metadata = std::uintmax_t{1} << 32U;
constexpr std::string_view metadata_name = ".metadata";

/// Offsets of a tensor's chunks in order, to find the one of a record.
std::vector<std::size_t> by_offset(const SavedTensor& tensor) {
    std::vector<std::size_t> order(tensor.chunks.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
    }
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
        return tensor.chunks[a].offset < tensor.chunks[b].offset;
    });
    return order;
}

class Reader {
public:
    Reader(const std::filesystem::path& folder, const std::string& shown)
        : folder_(folder),
          document_(read_file(folder / metadata_name, largest_metadata),
                    (std::filesystem::path(shown) / metadata_name).string(), pickle::Content::calls),
          metadata_(read_dcp_metadata(document_)) {
        out_.path = shown;
        out_.format = CheckpointFormat::dcp;
    }

    StoredCheckpoint read() {
        take_entries();
        list_files();
        place_items();
        check_files();
        for (const std::string& name : metadata_.unread) {
            out_.findings.push_back({name, "an entry of a kind that is not known", false});
        }
        return std::move(out_);
    }

private:
    void take_entries() {
        const OptimizerLayout optimizer = find_optimizer(metadata_.paths);
        out_.optimizer = optimizer.keys;
        out_.tensors.reserve(metadata_.tensors.size());  // index_ looks at their names
        for (std::size_t t = 0; t < metadata_.tensors.size(); ++t) {
            SavedTensor& tensor = metadata_.tensors[t].tensor;
            tensor.is_optimizer_state = optimizer.is_state[t];
            out_.tensors.push_back(std::move(tensor));
            index_.emplace(out_.tensors.back().name, t);
        }
        for (const std::string_view name : metadata_.other_values) {
            out_.other_values.emplace_back(name);
        }
    }

    /// Files that are there and those that the records name.
    void list_files() {
        std::map<std::string, SavedFile, std::less<>> files;
        for (const std::string& name : files_in(folder_)) {
            SavedFile& file = files[name];
            file.bytes = static_cast<std::int64_t>(size_of_file(folder_ / name));
            // A rank with nothing to write leaves an empty file.
            file.is_foreign = name != metadata_name && (rank_of_distcp(name) < 0 || file.bytes > 0);
        }
        std::string_view last;
        for (const DcpItem& item : metadata_.items) {
            if (item.file == last) {
                continue;
            }
            last = item.file;
            if (!is_plain_file_name(last)) {
                document_.fail(item.byte, "expected the plain name of a file in the same folder, found " +
                                              json::quote(last));
            }
            const auto [place, is_new] = files.try_emplace(std::string(last));
            place->second.is_present = place->second.is_present && !is_new;
            place->second.is_foreign = false;
        }
        for (auto& [name, file] : files) {
            file.name = name;
            file.rank = rank_of_distcp(name);
            out_.ranks = std::max(out_.ranks, file.is_foreign ? 0 : file.rank + 1);
            out_.files.push_back(std::move(file));
        }
    }

    std::size_t file_index(std::string_view name) const {
        const auto found = std::ranges::lower_bound(out_.files, name, {}, &SavedFile::name);
        return static_cast<std::size_t>(found - out_.files.begin());
    }

    void place_items() {
        orders_.resize(out_.tensors.size());
        items_in_.resize(out_.files.size());
        for (const DcpItem& item : metadata_.items) {
            const std::size_t file = file_index(item.file);
            items_in_[file].push_back(&item);
            if (item.is_chunk) {
                SavedChunk& chunk = chunk_of(item);
                if (chunk.bytes != 0) {
                    document_.fail(item.byte, "a second record of the chunk of " + json::quote(item.tensor) +
                                                  " at " + shown_sizes(item.offset));
                }
                chunk.file = file;
                chunk.position = item.position;
                chunk.bytes = item.bytes;
            }
        }
        for (std::size_t t = 0; t < out_.tensors.size(); ++t) {
            for (const SavedChunk& chunk : out_.tensors[t].chunks) {
                if (chunk.bytes == 0 && chunk.numel() > 0) {
                    document_.fail(metadata_.tensors[t].byte, "nothing says where the chunk of " +
                                                                  json::quote(out_.tensors[t].name) + " at " +
                                                                  shown_sizes(chunk.offset) + " is");
                }
            }
        }
    }

    SavedChunk& chunk_of(const DcpItem& item) {
        const auto tensor = index_.find(item.tensor);
        if (tensor == index_.end()) {
            document_.fail(item.byte,
                           "a record of " + json::quote(item.tensor) + ", which is no tensor here");
        }
        std::vector<SavedChunk>& chunks = out_.tensors[tensor->second].chunks;
        std::vector<std::size_t>& order = orders_[tensor->second];
        if (order.empty()) {
            order = by_offset(out_.tensors[tensor->second]);
        }
        const auto found = std::ranges::lower_bound(
            order, item.offset, {},
            [&](std::size_t i) -> const std::vector<std::int64_t>& { return chunks[i].offset; });
        if (found == order.end() || chunks[*found].offset != item.offset) {
            document_.fail(item.byte, "a record of " + json::quote(item.tensor) + " at " +
                                          shown_sizes(item.offset) + ", where no chunk begins");
        }
        return chunks[*found];
    }

    void check_files() {
        for (std::size_t f = 0; f < out_.files.size(); ++f) {
            check_items(items_in_[f], out_.files[f]);
        }
    }

    void check_items(std::vector<const DcpItem*>& items, const SavedFile& file) {
        if (file.is_foreign) {
            out_.findings.push_back({file.name, "is not of this checkpoint", false});
        }
        if (items.empty()) {
            return;
        }
        if (!file.is_present) {
            out_.findings.push_back(
                {file.name, "is not there; it should hold " + std::to_string(items.size()) + " items", true});
        }
        std::ranges::sort(items, {}, &DcpItem::position);
        std::int64_t end = 0;
        for (const DcpItem* item : items) {
            if (item->position < end) {
                document_.fail(item->byte, "an item at byte " + std::to_string(item->position) + " of " +
                                               file.name + ", where another one is");
            }
            end = item->position + item->bytes;
        }
        if (file.is_present && end > file.bytes) {
            out_.findings.push_back({file.name,
                                     "has " + std::to_string(file.bytes) + " bytes, but its items end at " +
                                         std::to_string(end) + "; is it cut off?",
                                     true});
        }
    }

    std::filesystem::path folder_;
    pickle::Document document_;
    DcpMetadata metadata_;
    StoredCheckpoint out_;
    std::unordered_map<std::string_view, std::size_t> index_;  // of tensors, by name
    std::vector<std::vector<std::size_t>> orders_;             // per tensor: its chunks by offset
    std::vector<std::vector<const DcpItem*>> items_in_;        // per file
};

}  // namespace

bool is_dcp_folder(const std::filesystem::path& folder) {
    return std::ranges::any_of(files_in(folder), [](const std::string& name) {
        return name == metadata_name || name.ends_with(".distcp");
    });
}

StoredCheckpoint read_dcp_folder(const std::filesystem::path& folder, const std::string& shown) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(folder / metadata_name, ignored)) {
        throw Error(ErrorKind::input, shown,
                    "has files of torch.distributed.checkpoint but no .metadata, which is written last: the "
                    "save did not finish");
    }
    return Reader(folder, shown).read();
}

}  // namespace fsdplan
