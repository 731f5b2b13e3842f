#include "checkpoint/dcp_totals.hpp"

#include <algorithm>

#include "checkpoint/call_player.hpp"
#include "checkpoint/saved_bytes.hpp"
#include "fsdplan/stored_checkpoint.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t plan_bytes_per_item = 450;
constexpr std::int64_t metadata_bytes_per_chunk = 155;
constexpr std::int64_t metadata_bytes_per_key = 165;

class Totals {
public:
    explicit Totals(const StateLayout& layout) : layout_(layout) {}

    DcpTotals run(bool with_optimizer) {
        for (const StateEntry& entry : layout_.entries) {
            const StateTensor& tensor = layout_.tensors[entry.tensor];
            if (tensor.is_buffer) {
                shared(dcp_item_bytes(tensor.dtype, tensor.shape));
            } else {
                cut(tensor, tensor.dtype);
            }
        }
        if (with_optimizer) {
            add_optimizer();
        }
        const std::int64_t ranks = layout_.mesh.ranks();
        DcpTotals out{.bytes = own_bytes_ + shared_bytes_};
        out.largest_rank_bytes =
            ceil_div(first_rank_bytes_, layout_.mesh.replicate) + ceil_div(shared_bytes_, ranks);
        out.metadata_bytes = metadata_bytes_per_chunk * chunks_ + metadata_bytes_per_key * keys_;
        out.plan_bytes = plan_bytes_per_item * keys_ * ranks;
        return out;
    }

private:
    void add_optimizer() {
        std::vector<std::int64_t> name_lengths;
        std::vector<char> named(layout_.tensors.size(), 0);
        for (const StateEntry& entry : layout_.entries) {
            const StateTensor& tensor = layout_.tensors[entry.tensor];
            if (!tensor.trainable || named[entry.tensor] != 0) {
                continue;
            }
            named[entry.tensor] = 1;
            name_lengths.push_back(static_cast<std::int64_t>(entry.name.size()));
            for (std::size_t kind = 0; kind < layout_.optimizer.tensors.size(); ++kind) {
                cut(tensor, layout_.optimizer.dtype.value_or(tensor.dtype));
            }
            if (layout_.optimizer.has_step) {
                shared(dcp_item_bytes(DType::float32, {}));
            }
        }
        for (std::size_t key = 0; key < layout_.optimizer.group_keys.size(); ++key) {
            shared(saved_object_bytes(1));
            --chunks_;
        }
        shared(saved_object_bytes(pickled_list_bytes(name_lengths)));
        --chunks_;
    }

    void shared(std::int64_t bytes) {
        shared_bytes_ += bytes;
        ++keys_;
        ++chunks_;
    }

    void cut(const StateTensor& tensor, DType dtype) {
        if (!layout_.sharded || tensor.shape.empty()) {
            return shared(dcp_item_bytes(dtype, tensor.shape));
        }
        ++keys_;
        const std::int64_t step = layout_.piece_rows(tensor);
        const std::int64_t whole_pieces = step > 0 ? tensor.rows() / step : 0;
        const std::int64_t rest = tensor.rows() - whole_pieces * step;
        std::vector<std::int64_t> shape = tensor.shape;
        const auto add = [&](std::int64_t rows, std::int64_t count) {
            shape.front() = rows;
            const std::int64_t bytes = dcp_item_bytes(dtype, shape);
            own_bytes_ += bytes * count;
            chunks_ += count;
            return bytes;
        };
        first_rank_bytes_ += add(std::min(step, tensor.rows()), std::max<std::int64_t>(whole_pieces, 0));
        if (rest > 0) {
            add(rest, 1);
        }
        // All empty pieces have one place and are written once; a ShardedTensor has none.
        const bool keeps_empty = layout_.runtime != StateRuntime::fsdp1 || layout_.device_mesh;
        if (keeps_empty && whole_pieces + (rest > 0 ? 1 : 0) < layout_.mesh.shard) {
            add(0, 1);
        }
    }

    const StateLayout& layout_;
    std::int64_t own_bytes_ = 0;
    std::int64_t shared_bytes_ = 0;
    std::int64_t first_rank_bytes_ = 0;
    std::int64_t chunks_ = 0;
    std::int64_t keys_ = 0;
};

}  // namespace

DcpTotals dcp_totals(const StateLayout& layout, bool with_optimizer) {
    return Totals(layout).run(with_optimizer);
}

}  // namespace fsdplan
