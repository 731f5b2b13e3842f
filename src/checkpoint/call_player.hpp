#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "fsdplan/checkpoint.hpp"

namespace fsdplan {

/// Bytes that live, and the most that ever did.
class Ledger {
public:
    void take(std::int64_t bytes) {
        level_ += bytes;
        peak_ = std::max(peak_, level_);
    }
    void give_back(std::int64_t bytes) { level_ -= bytes; }
    std::int64_t level() const { return level_; }
    std::int64_t peak() const { return peak_; }

private:
    std::int64_t level_ = 0;
    std::int64_t peak_ = 0;
};

/// What the players of all calls share: the two memories, and collectives that write into fresh buffers.
class CallPlayer {
public:
    CallPlayer(const StateLayout& of, const StateRequest& asked, std::int64_t on_rank, StateDevice place)
        : layout(of), request(asked), rank(on_rank), on_cpu(place == StateDevice::cpu) {}

    const StateLayout& layout;
    const StateRequest& request;
    const std::int64_t rank;
    const bool on_cpu;
    Ledger device;
    Ledger host;

    /// Rank of its shard group, or of all: whether it keeps what rank0_only leaves to the first.
    bool keeps(bool first) const { return !request.rank0_only || first; }
    bool offloads() const { return request.offload && !on_cpu; }

    void send(StateOperation operation, std::int64_t input, std::int64_t output) {
        call_.events.push_back({operation, input, output});
    }
    void send(StateOperation objects) { send(objects, 0, 0); }

    /// An all-gather whose output stays allocated. gloo's list form has a second copy meanwhile.
    void gather(std::int64_t input, std::int64_t output) {
        send(StateOperation::all_gather, input, output);
        device.take(output);
        if (on_cpu) {
            device.take(output);
            device.give_back(output);
        }
    }
    void copy_to_host(std::int64_t bytes) {
        call_.to_host_bytes += bytes;
        host.take(bytes);
    }
    void copy_to_device(std::int64_t bytes) {
        call_.to_device_bytes += bytes;
        device.take(bytes);
    }
    void hand_over(std::int64_t bytes, std::int64_t tensors = 1) {
        call_.returned_bytes += bytes;
        call_.returned_tensors += tensors;
    }

    StateCall finish() {
        call_.device_peak_bytes = device.peak();
        call_.device_kept_bytes = device.level();
        call_.host_peak_bytes = host.peak();
        call_.host_kept_bytes = host.level();
        return std::move(call_);
    }

private:
    StateCall call_;
};

// One function each family of calls; state_call() chooses.
void play_fsdp1_model_save(CallPlayer& player);
void play_fsdp1_model_load(CallPlayer& player);
void play_fsdp1_optimizer_save(CallPlayer& player);
void play_fsdp1_optimizer_load(CallPlayer& player);
void play_fsdp2_save(CallPlayer& player);
void play_fsdp2_load(CallPlayer& player);

/// The step counter of a parameter.
constexpr std::int64_t step_bytes = 4;

/// Where a tensor lies in the flat parameters.
struct PlacedTensor {
    const StateUnit* unit = nullptr;  ///< nullptr: in none
    std::int64_t offset = 0;          ///< in elements
};
/// One for each tensor of the layout, which must outlive them.
std::vector<PlacedTensor> placements(const StateLayout& layout);

/// Tensors with optimizer states, in the order of the state dict that holds them.
std::vector<std::size_t> optimizer_order(const StateLayout& layout);

/// Bytes of one optimizer state of a tensor whose own bytes are `bytes`.
std::int64_t state_bytes(const StateLayout& layout, const StateTensor& tensor, std::int64_t bytes);

}  // namespace fsdplan
