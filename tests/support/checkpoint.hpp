#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace fsdplan::test {

struct CheckpointTensor {
    std::string name;
    std::string dtype;  ///< as safetensors spells it
    std::vector<std::int64_t> shape;
    int bytes_per_element = 2;
};

/// A safetensors file without its data: the length and the header, padded to 8 bytes as the library does.
inline std::string safetensors_header(const std::vector<CheckpointTensor>& tensors) {
    std::string json = "{";
    std::int64_t end = 0;
    for (const CheckpointTensor& tensor : tensors) {
        const std::int64_t begin = end;
        std::int64_t bytes = tensor.bytes_per_element;
        json += (json.size() > 1 ? ",\"" : "\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype +
                "\",\"shape\":[";
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
            bytes *= tensor.shape[i];
        }
        end = begin + bytes;
        json += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
    }
    json += "}";
    json.resize((json.size() + 7) / 8 * 8, ' ');
    std::string out;
    for (unsigned i = 0; i < 8; ++i) {
        out += static_cast<char>((json.size() >> (8U * i)) & 0xffU);
    }
    return out + json;
}

/// An index over `shards` headers with `tensors` tensors of a mixture of 256 experts a layer, the way
/// DeepSeek-V3 is published. The files have no data.
inline void write_expert_checkpoint(const std::filesystem::path& folder, std::size_t tensors,
                                    std::size_t shards) {
    std::vector<CheckpointTensor> all;
    for (int layer = 0; all.size() < tensors; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer);
        all.push_back({prefix + ".input_layernorm.weight", "BF16", {7168}, 2});
        all.push_back({prefix + ".self_attn.o_proj.weight", "F8_E4M3", {7168, 16384}, 1});
        all.push_back({prefix + ".mlp.gate.weight", "BF16", {256, 7168}, 2});
        for (int expert = 0; expert < 256; ++expert) {
            const std::string path = prefix + ".mlp.experts." + std::to_string(expert);
            for (const char* projection : {".gate_proj", ".up_proj", ".down_proj"}) {
                all.push_back({path + projection + ".weight", "F8_E4M3", {2048, 7168}, 1});
                all.push_back({path + projection + ".weight_scale_inv", "F32", {16, 56}, 4});
            }
        }
    }
    all.resize(tensors);
    std::string map;
    const std::size_t per_shard = (tensors + shards - 1) / shards;
    for (std::size_t first = 0; first < tensors; first += per_shard) {
        const std::vector<CheckpointTensor> part(
            all.begin() + static_cast<std::ptrdiff_t>(first),
            all.begin() + static_cast<std::ptrdiff_t>(std::min(tensors, first + per_shard)));
        const std::string file = "model-" + std::to_string(first / per_shard) + ".safetensors";
        std::ofstream(folder / file, std::ios::binary) << safetensors_header(part);
        for (const CheckpointTensor& tensor : part) {
            map += (map.empty() ? "\"" : ",\n\"") + tensor.name + "\": \"" + file + "\"";
        }
    }
    std::ofstream(folder / "model.safetensors.index.json", std::ios::binary)
        << "{\"metadata\": {}, \"weight_map\": {" << map << "}}";
}

}  // namespace fsdplan::test
