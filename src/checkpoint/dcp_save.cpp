#include <algorithm>
#include <unordered_map>

#include "checkpoint/call_player.hpp"
#include "checkpoint/saved_bytes.hpp"
#include "fsdplan/stored_checkpoint.hpp"

// What torch.distributed.checkpoint writes: every rank lists its pieces, rank 0 takes duplicates out, every
// rank writes one file a thread.
namespace fsdplan {
namespace {

/// A piece that a rank offers to write.
struct WriteItem {
    std::size_t key = 0;      ///< number of the dotted name
    std::int64_t offset = 0;  ///< of its rows; -1: no tensor
    std::int64_t weight = 1;  ///< what it counts when work is shared out: bytes of the whole tensor
    std::int64_t file_bytes = 0;

    bool is_tensor() const { return offset >= 0; }
};

/// The write items of one rank, in the order of its state dict.
class Plan {
public:
    Plan(const StateLayout& layout, std::int64_t rank) : layout_(layout), rank_(rank) {}

    std::vector<WriteItem> list(bool with_optimizer) {
        for (const StateEntry& entry : layout_.entries) {
            const StateTensor& tensor = layout_.tensors[entry.tensor];
            if (tensor.is_buffer) {
                offer(0, tensor.shape, tensor.dtype, tensor.bytes());
            } else {
                cut(tensor, tensor.dtype);
            }
        }
        if (with_optimizer) {
            add_optimizer();
        }
        return std::move(items_);
    }

    std::size_t keys() const { return next_key_; }

private:
    void add_optimizer() {
        for (const std::size_t t : optimizer_order(layout_)) {
            const StateTensor& tensor = layout_.tensors[t];
            if (layout_.optimizer.has_step) {
                offer(0, {}, DType::float32, step_bytes);
            }
            for (std::size_t kind = 0; kind < layout_.optimizer.tensors.size(); ++kind) {
                cut(tensor, layout_.optimizer.dtype.value_or(tensor.dtype));
            }
        }
        for (std::size_t key = 0; key < layout_.optimizer.group_keys.size(); ++key) {
            object(saved_object_bytes(1));
        }
        object(saved_object_bytes(pickled_list_bytes(trained_name_lengths())));
    }

    std::vector<std::int64_t> trained_name_lengths() const {
        std::vector<std::int64_t> lengths;
        std::vector<char> named(layout_.tensors.size(), 0);
        for (const StateEntry& entry : layout_.entries) {
            if (layout_.tensors[entry.tensor].trainable && named[entry.tensor] == 0) {
                named[entry.tensor] = 1;
                lengths.push_back(static_cast<std::int64_t>(entry.name.size()));
            }
        }
        return lengths;
    }

    void object(std::int64_t file_bytes) {
        items_.push_back({.key = next_key_++, .offset = -1, .file_bytes = file_bytes});
    }

    void offer(std::int64_t offset, const std::vector<std::int64_t>& shape, DType dtype,
               std::int64_t whole_bytes) {
        items_.push_back({.key = next_key_++,
                          .offset = offset,
                          .weight = std::max<std::int64_t>(whole_bytes, 1),
                          .file_bytes = dcp_item_bytes(dtype, shape)});
    }

    void cut(const StateTensor& of, DType dtype) {
        const std::int64_t bytes = bytes_of(of.numel(), dtype).count;
        if (!layout_.sharded || of.shape.empty()) {
            return offer(0, of.shape, dtype, bytes);
        }
        std::vector<std::int64_t> shape = of.shape;
        shape.front() = layout_.rows(of, rank_);
        if (shape.front() == 0 && layout_.runtime == StateRuntime::fsdp1 && !layout_.device_mesh) {
            ++next_key_;  // a ShardedTensor without a local shard offers nothing
            return;
        }
        offer(std::min(of.rows(), layout_.shard_rank(rank_) * layout_.piece_rows(of)), shape, dtype, bytes);
    }

    const StateLayout& layout_;
    std::int64_t rank_;
    std::vector<WriteItem> items_;
    std::size_t next_key_ = 0;
};

/// Each item goes to the rank with the least so far of those that offer it, in the order of first sight.
class Deduplication {
public:
    explicit Deduplication(std::vector<std::vector<WriteItem>>& plans) : plans_(plans) {}

    void run() {
        std::unordered_map<std::uint64_t, std::size_t> place;
        for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
            for (const WriteItem& item : plans_[rank]) {
                const auto [found, is_new] = place.emplace(id(item), offers_.size());
                if (is_new) {
                    offers_.push_back({.weight = item.weight});
                }
                offers_[found->second].ranks.push_back(rank);
            }
        }
        std::vector<std::int64_t> assigned(plans_.size(), 0);
        for (Offer& offer : offers_) {
            offer.winner =
                *std::ranges::min_element(offer.ranks, {}, [&](std::size_t rank) { return assigned[rank]; });
            assigned[offer.winner] += offer.weight;
        }
        for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
            std::erase_if(plans_[rank],
                          [&](const WriteItem& item) { return offers_[place.at(id(item))].winner != rank; });
        }
    }

private:
    struct Offer {
        std::int64_t weight = 0;
        std::vector<std::size_t> ranks;
        std::size_t winner = 0;
    };
    static std::uint64_t id(const WriteItem& item) {
        constexpr int offset_bits = 40;
        return (static_cast<std::uint64_t>(item.key) << offset_bits) ^
               static_cast<std::uint64_t>(item.offset + 1);
    }

    std::vector<std::vector<WriteItem>>& plans_;
    std::vector<Offer> offers_;
};

/// Bytes of each file of one rank. With several threads tensors go, the largest first, to the emptiest file.
std::vector<std::int64_t> file_sizes(std::vector<WriteItem> items, int threads) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(threads), 0);
    if (threads == 1) {
        for (const WriteItem& item : items) {
            sizes.front() += item.file_bytes;
        }
        return sizes;
    }
    std::vector<std::int64_t> filled(sizes.size(), 0);
    std::size_t next = 0;
    const auto tensors =
        std::stable_partition(items.begin(), items.end(), [](const WriteItem& i) { return !i.is_tensor(); });
    for (auto object = items.begin(); object != tensors; ++object) {
        sizes[next++ % sizes.size()] += object->file_bytes;
    }
    std::stable_sort(tensors, items.end(),
                     [](const WriteItem& a, const WriteItem& b) { return a.weight > b.weight; });
    for (auto tensor = tensors; tensor != items.end(); ++tensor) {
        const auto emptiest = static_cast<std::size_t>(std::ranges::min_element(filled) - filled.begin());
        filled[emptiest] += tensor->weight;
        sizes[emptiest] += tensor->file_bytes;
    }
    return sizes;
}

}  // namespace

std::vector<StateEvent> dcp_events(bool load) {
    using enum StateOperation;
    if (load) {
        return {{object_gather}, {object_scatter}, {object_all_gather}};
    }
    return {{object_gather}, {object_scatter}, {object_gather}, {object_broadcast}};
}

DcpSave dcp_save(const StateLayout& layout, bool with_optimizer, int threads) {
    DcpSave out;
    std::vector<std::vector<WriteItem>> plans;
    for (std::int64_t rank = 0; rank < layout.mesh.ranks(); ++rank) {
        Plan plan(layout, rank);
        plans.push_back(plan.list(with_optimizer));
        out.keys = static_cast<std::int64_t>(plan.keys());
        out.largest_rank_items =
            std::max(out.largest_rank_items, static_cast<std::int64_t>(plans.back().size()));
    }
    Deduplication(plans).run();
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
        out.chunks += std::ranges::count_if(plans[rank], &WriteItem::is_tensor);
        int number = 0;
        for (const std::int64_t bytes : file_sizes(std::move(plans[rank]), threads)) {
            out.files.push_back(
                {"__" + std::to_string(rank) + "_" + std::to_string(number++) + ".distcp", bytes});
        }
    }
    constexpr std::int64_t bytes_per_chunk = 155;
    constexpr std::int64_t bytes_per_key = 165;
    out.metadata_bytes = bytes_per_chunk * out.chunks + bytes_per_key * out.keys;
    return out;
}

}  // namespace fsdplan
