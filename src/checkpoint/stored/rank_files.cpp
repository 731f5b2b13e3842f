#include <algorithm>
#include <map>
#include <set>

#include "base/json.hpp"
#include "checkpoint/stored/rank_name.hpp"
#include "checkpoint/stored/readers.hpp"
#include "checkpoint/stored/tiling.hpp"

namespace fsdplan {
namespace {

class Joiner {
public:
    explicit Joiner(const std::string& shown) {
        out_.path = shown;
        out_.format = CheckpointFormat::torch_save_ranks;
    }

    void add(StoredCheckpoint file) {
        const std::size_t index = out_.files.size();
        SavedFile& own = file.files.front();
        own.rank = own.rank < 0 ? rank_in_name(own.name) : own.rank;
        ranks_.insert(own.rank);
        for (SavedTensor& tensor : file.tensors) {
            for (SavedChunk& chunk : tensor.chunks) {
                chunk.file = index;
            }
            join(std::move(tensor), own.name);
        }
        for (std::string& name : file.other_values) {
            if (others_.insert(name).second) {
                out_.other_values.push_back(std::move(name));
            }
        }
        std::ranges::move(file.findings, std::back_inserter(out_.findings));
        out_.optimizer = std::max(out_.optimizer, file.optimizer);
        out_.ranks = std::max({out_.ranks, file.ranks, own.rank + 1});
        out_.files.push_back(std::move(own));
    }

    StoredCheckpoint finish() {
        for (const SavedTensor& tensor : out_.tensors) {
            check_pieces(tensor);
        }
        const auto missing = out_.ranks - static_cast<int>(ranks_.size());
        if (missing > 0) {
            int first = 0;
            while (ranks_.contains(first)) {
                ++first;
            }
            find("rank " + std::to_string(first),
                 "has no file; " + std::to_string(missing) + " of " + std::to_string(out_.ranks) +
                     " ranks have none",
                 true);
        }
        return std::move(out_);
    }

private:
    void find(std::string where, std::string message, bool is_fault) {
        out_.findings.push_back({std::move(where), std::move(message), is_fault});
    }

    void join(SavedTensor tensor, const std::string& file) {
        const auto [place, is_new] = index_.emplace(tensor.name, out_.tensors.size());
        if (is_new) {
            out_.tensors.push_back(std::move(tensor));
            return;
        }
        SavedTensor& known = out_.tensors[place->second];
        if (known.saved_as != tensor.saved_as || known.dtype != tensor.dtype) {
            throw Error(ErrorKind::input, out_.path,
                        "tensor " + json::quote(tensor.name) + " of " + file +
                            " is held in another way than in the files before it");
        }
        if (known.shape != tensor.shape) {
            // What optimizer.state_dict() and plain modules hold are a rank's own pieces.
            find(tensor.name,
                 "has shape " + shown_sizes(tensor.shape) + " in " + file + ", but " +
                     shown_sizes(known.shape) + " in the first file",
                 false);
        }
        std::ranges::move(tensor.chunks, std::back_inserter(known.chunks));
    }

    /// Whether the ranks' pieces make the tensor. Plain tensors are copies, as are pieces of replicas.
    void check_pieces(const SavedTensor& tensor) {
        if (tensor.saved_as == SavedAs::plain || tensor.chunks.empty()) {
            return;
        }
        SavedTensor once;
        once.shape = tensor.shape;
        std::set<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> boxes;
        for (const SavedChunk& chunk : tensor.chunks) {
            if (chunk.offset.size() != chunk.shape.size()) {
                return;  // where a piece lies is not known
            }
            if (boxes.emplace(chunk.offset, chunk.shape).second) {
                once.chunks.push_back(chunk);
            }
        }
        if (const auto fault = tiling_fault(once)) {
            find(tensor.name, *fault, true);
        }
    }

    StoredCheckpoint out_;
    std::map<std::string, std::size_t, std::less<>> index_;  // of tensors, by name
    std::set<std::string> others_;
    std::set<int> ranks_;
};

}  // namespace

StoredCheckpoint read_rank_files(const std::filesystem::path& folder, const std::string& shown,
                                 const std::vector<std::string>& names) {
    Joiner joiner(shown);
    for (const std::string& name : names) {
        joiner.add(read_torch_file(folder / name, (std::filesystem::path(shown) / name).string(), name));
    }
    return joiner.finish();
}

}  // namespace fsdplan
