#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fsdplan/operators.hpp"

namespace fsdplan {

/// Bytes alive while the events of a graph go by, without a runtime: parameters' gradients, in the dtype that
/// they compute in, appear and stay.
class Playback {
public:
    /// Storages below `least_bytes` are left out.
    Playback(const OperatorGraph& graph, const ModuleTree& tree, std::int64_t least_bytes = 0)
        : graph_(graph), tree_(tree), least_(least_bytes), holders_(graph.storages.size(), 0) {}

    void play(const std::vector<MemoryEvent>& events) {
        using Kind = MemoryEvent::Kind;
        for (const MemoryEvent& event : events) {
            const auto index = static_cast<std::size_t>(event.index);
            switch (event.kind) {
                case Kind::allocate:
                    holders_[index] = 1;
                    appears(graph_.storages[index].bytes);
                    break;
                case Kind::save:
                    ++holders_[index];
                    break;
                case Kind::drop:
                case Kind::release:
                    if (--holders_[index] == 0 && graph_.storages[index].bytes >= least_) {
                        live_ -= graph_.storages[index].bytes;
                    }
                    break;
                case Kind::gradient:
                    appears(bytes_of(tree_.tensors[index].numel,
                                     graph_.workload.compute.value_or(tree_.tensors[index].dtype))
                                .count);
                    break;
                case Kind::run:
                case Kind::unpack:
                    break;
            }
        }
    }

    std::int64_t live() const { return live_; }
    std::int64_t peak() const { return peak_; }  ///< since the last reset_peak()
    void reset_peak() { peak_ = live_; }
    std::int64_t allocations() const { return allocations_; }

private:
    void appears(std::int64_t bytes) {
        if (bytes >= least_) {
            ++allocations_;
            live_ += bytes;
            peak_ = std::max(peak_, live_);
        }
    }

    const OperatorGraph& graph_;
    const ModuleTree& tree_;
    std::int64_t least_;
    std::vector<std::int32_t> holders_;
    std::int64_t live_ = 0;
    std::int64_t peak_ = 0;
    std::int64_t allocations_ = 0;
};

}  // namespace fsdplan
