#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "fsdplan/model.hpp"

// How long until a checkpoint of very many tensors is a tree?
namespace fsdplan::bench {
namespace {

/// A checkpoint of 89,088 tensors in 163 files of a format that is read no further than its header: experts
/// as modules, each projection with its scale, as large models of 2025 are published.
class Checkpoint {
public:
    Checkpoint()
        : folder_(std::filesystem::temp_directory_path() / ("fsdplan-bench-" + std::to_string(getpid()))) {
        std::filesystem::create_directories(folder_);
        for (std::int64_t layer = 0; layer < 58; ++layer) {
            for (std::int64_t expert = 0; expert < 256; ++expert) {
                for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
                    const std::string name = "model.layers." + std::to_string(layer) + ".mlp.experts." +
                                             std::to_string(expert) + "." + projection;
                    add(name + ".weight", R"("F8_E4M3","shape":[16,16])", 256);
                    add(name + ".weight_scale_inv", R"("F32","shape":[1,1])", 4);
                }
            }
        }
        write_shard();
        std::ofstream(index()) << "{\"metadata\":{},\"weight_map\":{" << weight_map_ << "}}";
    }
    Checkpoint(const Checkpoint&) = delete;
    Checkpoint& operator=(const Checkpoint&) = delete;
    Checkpoint(Checkpoint&&) = delete;
    Checkpoint& operator=(Checkpoint&&) = delete;
    ~Checkpoint() { std::filesystem::remove_all(folder_); }

    std::string index() const { return folder_ / "model.safetensors.index.json"; }
    std::int64_t tensors() const { return tensors_; }

private:
    static constexpr std::int64_t tensors_in_shard = 547;

    std::string shard() const { return "model-" + std::to_string(shards_) + ".safetensors"; }

    void add(const std::string& name, const std::string& dtype_and_shape, std::int64_t bytes) {
        header_ += (header_.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":" + dtype_and_shape +
                   ",\"data_offsets\":[" + std::to_string(size_) + "," + std::to_string(size_ + bytes) + "]}";
        weight_map_ += (weight_map_.empty() ? "\"" : ",\"") + name + "\":\"" + shard() + "\"";
        size_ += bytes;
        if (++tensors_ % tensors_in_shard == 0) {
            write_shard();
        }
    }

    void write_shard() {
        header_ += "}";
        const std::filesystem::path path = folder_ / shard();
        const std::uint64_t header_size = header_.size();
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(&header_size), sizeof header_size)
            .write(header_.data(), static_cast<std::streamsize>(header_.size()));
        std::filesystem::resize_file(path,
                                     sizeof header_size + header_size + static_cast<std::uint64_t>(size_));
        header_.clear();
        size_ = 0;
        ++shards_;
    }

    std::filesystem::path folder_;
    std::string weight_map_;
    std::string header_;
    std::int64_t size_ = 0;
    std::int64_t shards_ = 0;
    std::int64_t tensors_ = 0;
};

void import_index(benchmark::State& state) {
    const Checkpoint checkpoint;
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(import_model(checkpoint.index()));
    }
    state.counters["tensors"] = static_cast<double>(checkpoint.tensors());
}
BENCHMARK(import_index)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdplan::bench
