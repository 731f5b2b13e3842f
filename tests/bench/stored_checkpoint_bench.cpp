#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <unordered_map>

#include "fsdplan/stored_checkpoint.hpp"
#include "support/zip_file.hpp"

// How long until the metadata of a DCP checkpoint of very many pieces are read and checked?
namespace fsdplan::bench {
namespace {

using test::little_endian;

/// Writes pickles of protocol 4 as Python does for DCP's metadata: every string and container in the memo,
/// strings that were there before taken from it.
class Pickler {
public:
    void text(const std::string& value) {
        const auto [known, is_new] = strings_.emplace(value, memo_);
        if (is_new) {
            out_ += '\x8c' + little_endian(value.size(), 1) + value;
            memoize();
        } else {
            get(known->second);
        }
    }
    void integer(std::int64_t value) {
        out_ += value < 256     ? "K" + little_endian(static_cast<std::uint64_t>(value), 1)
                : value < 65536 ? "M" + little_endian(static_cast<std::uint64_t>(value), 2)
                                : "J" + little_endian(static_cast<std::uint64_t>(value), 4);
    }
    void code(const std::string& opcodes) { out_ += opcodes; }
    void memoize() {
        out_ += '\x94';
        ++memo_;
    }
    /// An object of a class of `module`, whose state comes next and is followed by code("b").
    void object(const std::string& module, const std::string& name) {
        class_name(module, name);
        out_ += ")\x81";
        memoize();
    }
    void class_name(const std::string& module, const std::string& name) {
        const auto [known, is_new] = strings_.emplace(module + " " + name, 0);
        if (!is_new) {
            get(known->second);
            return;
        }
        text(module);
        text(name);
        out_ += '\x93';
        strings_[module + " " + name] = memo_;
        memoize();
    }
    void begin_dict() {
        out_ += '}';
        memoize();
        out_ += '(';
    }
    void size(std::int64_t a, std::int64_t b) {
        class_name("torch", "Size");
        integer(a);
        integer(b);
        for (const char* opcode : {"\x86", "\x85", "R"}) {
            out_ += opcode;
            memoize();
        }
    }
    const std::string& bytes() const { return out_; }

private:
    void get(std::size_t number) {
        out_ += number < 256 ? "h" + little_endian(number, 1) : "j" + little_endian(number, 4);
    }

    std::string out_ = "\x80\x04";
    std::size_t memo_ = 0;
    std::unordered_map<std::string, std::size_t> strings_;
};

constexpr int tensors = 1000;
constexpr int ranks = 100;
constexpr std::int64_t rows = 8;
constexpr std::int64_t columns = 1024;
constexpr std::int64_t item_bytes = 100'000;

std::string tensor_name(int tensor) {
    return "optim.state.model.layers." + std::to_string(tensor) + ".self_attn.q_proj.weight.exp_avg";
}

void write_tensor(int tensor, Pickler& out) {
    const std::string module = "torch.distributed.checkpoint.metadata";
    out.text(tensor_name(tensor));
    out.object(module, "TensorStorageMetadata");
    out.begin_dict();
    out.text("properties");
    out.object(module, "TensorProperties");
    out.code("(");
    out.class_name("torch", "float32");
    out.code("NN\x89\x89tb");
    out.text("size");
    out.size(rows * ranks, columns);
    out.text("chunks");
    out.code("]");
    out.memoize();
    out.code("(");
    for (int rank = 0; rank < ranks; ++rank) {
        out.object(module, "ChunkStorageMetadata");
        out.begin_dict();
        out.text("offsets");
        out.size(rank * rows, 0);
        out.text("sizes");
        out.size(rows, columns);
        out.code("ub");
    }
    out.code("eub");
}

void write_record(int tensor, int rank, Pickler& out) {
    out.object("torch.distributed.checkpoint.metadata", "MetadataIndex");
    out.begin_dict();
    out.text("fqn");
    out.text(tensor_name(tensor));
    out.text("index");
    out.integer(rank);
    out.text("offset");
    out.size(rank * rows, 0);
    out.code("ub");
    out.object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out.begin_dict();
    out.text("relative_path");
    out.text("__" + std::to_string(rank) + "_0.distcp");
    out.text("offset");
    out.integer(tensor * item_bytes);
    out.text("length");
    out.integer(item_bytes);
    out.code("ub");
}

std::string metadata() {
    Pickler out;
    out.object("torch.distributed.checkpoint.metadata", "Metadata");
    out.begin_dict();
    out.text("state_dict_metadata");
    out.begin_dict();
    for (int tensor = 0; tensor < tensors; ++tensor) {
        write_tensor(tensor, out);
    }
    out.code("u");
    out.text("storage_data");
    out.begin_dict();
    for (int rank = 0; rank < ranks; ++rank) {
        for (int tensor = 0; tensor < tensors; ++tensor) {
            write_record(tensor, rank, out);
        }
    }
    out.code("uub.");
    return out.bytes();
}

class Folder {
public:
    Folder()
        : path_(std::filesystem::temp_directory_path() / ("fsdplan-bench-dcp-" + std::to_string(getpid()))) {
        std::filesystem::create_directories(path_);
        std::ofstream(path_ / ".metadata", std::ios::binary) << metadata();
        for (int rank = 0; rank < ranks; ++rank) {
            const std::filesystem::path file = path_ / ("__" + std::to_string(rank) + "_0.distcp");
            std::ofstream(file).close();
            std::filesystem::resize_file(file, static_cast<std::uintmax_t>(tensors * item_bytes));
        }
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    Folder(Folder&&) = delete;
    Folder& operator=(Folder&&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }

    std::string path() const { return path_.string(); }

private:
    std::filesystem::path path_;
};

void read_dcp_of_100000_chunks(benchmark::State& state) {
    const Folder folder;
    std::size_t chunks = 0;
    for ([[maybe_unused]] auto _ : state) {
        const StoredCheckpoint checkpoint = read_checkpoint(folder.path());
        chunks = 0;
        for (const SavedTensor& tensor : checkpoint.tensors) {
            chunks += tensor.chunks.size();
        }
        if (!checkpoint.is_complete()) {
            state.SkipWithError("the checkpoint lacks something");
        }
    }
    state.counters["chunks"] = static_cast<double>(chunks);
}
BENCHMARK(read_dcp_of_100000_chunks)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdplan::bench
