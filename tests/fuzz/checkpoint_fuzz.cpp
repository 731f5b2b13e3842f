#include <fstream>
#include <string>

#include "input_file.hpp"
#include "look_at.hpp"

// A checkpoint of any bytes. The first one says what the others are, so that mutations keep getting past the
// length at the front of a safetensors file.
namespace {

enum class Form : unsigned char { file, header, header_with_config, index };

std::string with_length(const std::string& header) {
    std::string out;
    for (unsigned i = 0; i < 8; ++i) {
        out += static_cast<char>((header.size() >> (8U * i)) & 0xffU);
    }
    return out + header;
}

void write(const std::filesystem::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return -1;
    }
    const auto form = static_cast<Form>(data[0] % 4);
    const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::filesystem::path folder = fsdplan::fuzz::input_folder();
    std::filesystem::path file = folder / "model.safetensors";
    std::filesystem::remove(folder / "config.json");
    if (form == Form::file) {
        write(file, rest);
    } else if (form == Form::index) {
        write(folder / "a", with_length(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})"));
        write(folder / "b", with_length(R"({"y.0":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})"));
        file = folder / "model.safetensors.index.json";
        write(file, rest);
    } else {
        write(file, with_length(rest));
    }
    if (form == Form::header_with_config) {
        write(folder / "config.json", R"({"model_type":"llama","hidden_size":4,"intermediate_size":8,
            "num_hidden_layers":1,"num_attention_heads":2,"vocab_size":10,"tie_word_embeddings":true})");
    }
    return fsdplan::fuzz::look_at(file.string());
}
