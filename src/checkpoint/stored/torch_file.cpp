#include "checkpoint/stored/torch_file.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/file.hpp"
#include "base/json.hpp"
#include "checkpoint/stored/readers.hpp"
#include "checkpoint/stored/state_walk.hpp"

namespace fsdplan {
namespace {

using pickle::Value;
using namespace std::string_view_literals;

constexpr std::size_t head_bytes = 32;
constexpr std::int64_t largest_pickle = std::int64_t{1} << 30U;
// Before 1.6 a file was several pickles, the first one this magic number.
constexpr std::string_view before_1_6 = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."sv;

std::string head_of(const std::filesystem::path& path) {
    const std::uintmax_t size = size_of_file(path);
    return read_range(path, 0, static_cast<std::size_t>(std::min<std::uintmax_t>(size, head_bytes)));
}

/// The folder of the one member <folder>/data.pkl.
std::string folder_of(const std::vector<ZipMember>& members, const std::string& shown) {
    for (const ZipMember& member : members) {
        const std::size_t slash = member.name.find('/');
        if (slash != std::string::npos && member.name.substr(slash) == "/data.pkl") {
            return member.name.substr(0, slash + 1);
        }
    }
    throw Error(ErrorKind::input, shown,
                "is a ZIP archive without a data.pkl; expected a file of torch.save");
}

class Reader {
public:
    Reader(const std::filesystem::path& path, const std::string& shown, const std::string& name)
        : shown_(shown),
          archive_(read_torch_archive(path, shown, {.bytes = static_cast<std::int64_t>(size_of_file(path))})),
          document_(std::move(archive_.bytes), shown + " member " + archive_.folder + "data.pkl",
                    pickle::Content::calls) {
        out_.path = shown;
        out_.format = CheckpointFormat::torch_save;
        out_.files.push_back({.name = name, .bytes = static_cast<std::int64_t>(size_of_file(path))});
    }

    StoredCheckpoint read() {
        check_storages();
        const StateWalk walk = walk_state(document_);
        std::vector<KeyPath> paths;
        for (const StateLeaf& leaf : walk.leaves) {
            paths.push_back(leaf.path);
        }
        const OptimizerLayout optimizer = find_optimizer(paths);
        out_.optimizer = optimizer.keys;
        for (std::size_t i = 0; i < walk.leaves.size(); ++i) {
            add(walk.leaves[i], optimizer.is_state[i]);
        }
        for (const auto& [name, count] : walk.opaque) {
            find(name, std::to_string(count) + " objects of this class, which were not looked into", false);
        }
        return std::move(out_);
    }

private:
    void find(std::string where, std::string message, bool is_fault) {
        out_.findings.push_back({std::move(where), std::move(message), is_fault});
    }

    /// Every storage that the pickle speaks of is a member of its size.
    void check_storages() {
        std::set<std::string_view> used;
        for (const Value& persistent : document_.all(pickle::Type::persistent)) {
            const TorchStorage storage = torch_storage(persistent);
            const auto member = archive_.storages.find(storage.key);
            if (member == archive_.storages.end()) {
                persistent.refuse("storage " + json::quote(storage.key) + " is no member of the archive");
            }
            if (member->second.bytes != storage.bytes) {
                persistent.refuse("a storage of " + std::to_string(storage.bytes) + " bytes, whose member " +
                                  member->second.name + " has " + std::to_string(member->second.bytes));
            }
            used.insert(storage.key);
        }
        std::int64_t unused = 0;
        for (const auto& [key, member] : archive_.storages) {
            unused += used.contains(key) ? 0 : 1;
        }
        if (unused > 0) {
            find(out_.files.front().name, std::to_string(unused) + " storages that nothing refers to", false);
        }
    }

    void add(const StateLeaf& leaf, bool is_state) {
        if (!leaf.tensor) {
            out_.other_values.push_back(leaf.name);
            return;
        }
        const TorchTensor& from = *leaf.tensor;
        SavedTensor tensor;
        tensor.name = leaf.name;
        tensor.dtype = from.dtype;
        tensor.shape = from.shape;
        tensor.saved_as = from.saved_as;
        tensor.mesh = from.mesh;
        tensor.placements = from.placements;
        tensor.is_optimizer_state = is_state;
        for (const TorchPiece& piece : from.pieces) {
            tensor.chunks.push_back(chunk_of(piece));
        }
        out_.tensors.push_back(std::move(tensor));
        out_.ranks = std::max(out_.ranks, from.ranks);
        out_.files.front().rank = std::max(out_.files.front().rank, from.rank);
    }

    SavedChunk chunk_of(const TorchPiece& piece) const {
        const ZipMember& member = archive_.storages.find(piece.storage.key)->second;
        SavedChunk chunk;
        chunk.offset = piece.offset;
        chunk.shape = piece.shape;
        chunk.position = member.position;
        chunk.bytes = member.bytes;
        chunk.storage = piece.storage.key;
        chunk.storage_offset = piece.storage_offset;
        chunk.stride = piece.stride;
        return chunk;
    }

    std::string shown_;
    TorchPickle archive_;
    pickle::Document document_;
    StoredCheckpoint out_;
};

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
    const std::string head = head_of(path);
    return head.starts_with("PK\3\4") || head.starts_with(before_1_6);
}

TorchPickle read_torch_archive(const std::filesystem::path& path, const std::string& shown, FileRange range) {
    const std::vector<ZipMember> members = read_zip_directory(path, shown, range);
    TorchPickle out;
    out.folder = folder_of(members, shown);
    for (const ZipMember& member : members) {
        if (member.name == out.folder + "data.pkl") {
            if (member.bytes > largest_pickle) {
                throw Error(ErrorKind::input, shown,
                            "a data.pkl of " + std::to_string(member.bytes) + " bytes; the limit is " +
                                std::to_string(largest_pickle));
            }
            out.bytes = read_range(path, static_cast<std::uintmax_t>(member.position),
                                   static_cast<std::size_t>(member.bytes));
        } else if (member.name.starts_with(out.folder + "data/")) {
            out.storages.emplace(member.name.substr(out.folder.size() + 5), member);
        }
    }
    return out;
}

StoredCheckpoint read_torch_file(const std::filesystem::path& path, const std::string& shown,
                                 const std::string& name) {
    if (head_of(path).starts_with(before_1_6)) {
        throw Error(ErrorKind::input, shown,
                    "is in torch.save's format of before PyTorch 1.6, which is not read; load it and save it "
                    "again");
    }
    return Reader(path, shown, name).read();
}

}  // namespace fsdplan
