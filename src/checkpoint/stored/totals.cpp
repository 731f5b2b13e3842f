#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/shape.hpp"
#include "fsdplan/stored_checkpoint.hpp"

namespace fsdplan {
namespace {

SavedTotals totals_of(const StoredCheckpoint& checkpoint, bool optimizer_state) {
    SavedTotals out;
    for (const SavedTensor& tensor : checkpoint.tensors) {
        if (tensor.is_optimizer_state == optimizer_state) {
            ++out.tensors;
            out.numel += tensor.numel();
            out.bytes += tensor.bytes();
        }
    }
    for (const StoredCheckpoint& part : checkpoint.parts) {
        const SavedTotals inside = totals_of(part, optimizer_state);
        out.tensors += inside.tensors;
        out.numel += inside.numel;
        out.bytes += inside.bytes;
    }
    return out;
}

}  // namespace

std::string_view name(CheckpointFormat format) {
    switch (format) {
        case CheckpointFormat::dcp:
            return "DCP";
        case CheckpointFormat::dcp_safetensors:
            return "DCP in safetensors form";
        case CheckpointFormat::torch_save:
            return "torch.save";
        case CheckpointFormat::torch_save_ranks:
            return "torch.save of each rank";
        case CheckpointFormat::safetensors:
            return "safetensors";
        case CheckpointFormat::accelerate:
            return "accelerate";
    }
    return "";
}

std::int64_t SavedChunk::numel() const {
    return numel_of(shape);
}

std::int64_t SavedTensor::numel() const {
    return numel_of(shape);
}

Bytes SavedTensor::bytes() const {
    return bytes_of(numel(), dtype);
}

SavedTotals StoredCheckpoint::model() const {
    return totals_of(*this, false);
}

SavedTotals StoredCheckpoint::optimizer_state() const {
    return totals_of(*this, true);
}

Bytes StoredCheckpoint::stored() const {
    Bytes out;
    std::map<std::pair<std::size_t, std::string_view>, std::int64_t> storages;  // by file and key
    for (const SavedTensor& tensor : tensors) {
        for (const SavedChunk& chunk : tensor.chunks) {
            if (chunk.storage.empty()) {
                out += bytes_of(chunk.numel(), tensor.dtype);
            } else {
                storages[{chunk.file, chunk.storage}] = chunk.bytes;
            }
        }
    }
    for (const auto& [storage, bytes] : storages) {
        out.count += bytes;
    }
    for (const StoredCheckpoint& part : parts) {
        out += part.stored();
    }
    return out;
}

Bytes StoredCheckpoint::in_files() const {
    Bytes out;
    for (const SavedFile& file : files) {
        out.count += file.is_foreign ? 0 : file.bytes;
    }
    for (const StoredCheckpoint& part : parts) {
        out += part.in_files();
    }
    return out;
}

bool StoredCheckpoint::is_complete() const {
    return std::ranges::none_of(findings, &CheckpointFinding::is_fault) &&
           std::ranges::all_of(parts, &StoredCheckpoint::is_complete);
}

}  // namespace fsdplan
