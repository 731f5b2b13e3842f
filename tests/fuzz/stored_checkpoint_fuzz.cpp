#include <fstream>
#include <string>

#include "fsdplan/stored_checkpoint.hpp"
#include "input_file.hpp"
#include "support/zip_file.hpp"

// A stored checkpoint of any bytes. The first one says what the others are: a file of torch.save, the pickle
// inside of one, the metadata of a DCP folder, or the sharding info of a safetensors file.
namespace {

enum class Form : unsigned char { file, pickle, metadata, sharding_info };

void write(const std::filesystem::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
}

/// A file of which each rank has one piece, and what it says of where that is.
std::string safetensors_file(const std::string& info) {
    std::string text;
    for (const char c : info) {  // as a JSON string
        text += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
    const std::string header = R"({"__metadata__":{"DCP_SHARDING_INFO":")" + text +
                               R"("},"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
    return fsdplan::test::little_endian(header.size(), 8) + header + std::string(8, '\0');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return -1;
    }
    const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::filesystem::path folder = fsdplan::fuzz::input_folder();
    std::filesystem::path path = folder / "rank0.pt";
    switch (static_cast<Form>(data[0] % 4)) {
        case Form::file:
            write(path, rest);
            break;
        case Form::pickle:
            write(path, fsdplan::test::zip_file({{"rank0/data.pkl", rest},
                                                 {"rank0/data/0", std::string(8, '\0')},
                                                 {"rank0/data/1", std::string(12, '\0')}}));
            break;
        case Form::metadata:
            path = folder / "dcp";
            std::filesystem::create_directories(path);
            write(path / "__0_0.distcp", std::string(4096, '\0'));
            write(path / ".metadata", rest);
            break;
        case Form::sharding_info:
            path = folder / "shards";
            std::filesystem::create_directories(path);
            write(path / "shard-00001-model-00001-of-00001.safetensors", safetensors_file(rest));
            break;
    }
    try {
        const fsdplan::StoredCheckpoint checkpoint = fsdplan::read_checkpoint(path.string());
        static_cast<void>(checkpoint.stored().count + checkpoint.model().bytes.count);
    } catch (const fsdplan::Error&) {
        return -1;  // refused with a reason; not worth keeping as a seed
    }
    return 0;
}
