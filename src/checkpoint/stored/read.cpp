#include <algorithm>
#include <array>
#include <system_error>

#include "base/file.hpp"
#include "checkpoint/stored/rank_name.hpp"
#include "checkpoint/stored/readers.hpp"
#include "checkpoint/stored/torch_file.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t head_bytes = 4096;
constexpr std::string_view known =
    "a folder of torch.distributed.checkpoint (with .metadata) or accelerate, a file of torch.save or a "
    "folder of those of all ranks, safetensors files or their index";

bool has(const std::vector<std::string>& names, std::string_view ending) {
    return std::ranges::any_of(names, [&](const std::string& name) { return name.ends_with(ending); });
}

bool has_file(const std::filesystem::path& folder, std::string_view name) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(folder / name, ignored);
}

std::vector<std::string> torch_files(const std::filesystem::path& folder,
                                     const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const std::string& name : names) {
        if (is_torch_file(folder / name)) {
            out.push_back(name);
        }
    }
    return out;
}

/// Whether accelerate or Trainer was here, by what they always leave: an optimizer or FSDP's model.
bool is_accelerate(const std::filesystem::path& folder, const std::vector<std::string>& names) {
    const auto begins = [](std::string_view name) {
        return name.starts_with("pytorch_model_fsdp") || name.starts_with("optimizer");
    };
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        if (entry.is_directory(error) && begins(entry.path().filename().string())) {
            return true;
        }
    }
    return std::ranges::any_of(names, begins);
}

StoredCheckpoint read_folder(const std::filesystem::path& folder, const std::string& shown) {
    if (is_dcp_folder(folder)) {
        return read_dcp_folder(folder, shown);
    }
    const std::vector<std::string> names = files_in(folder);
    if (is_accelerate(folder, names)) {
        return read_accelerate_folder(folder, shown);
    }
    if (has(names, ".safetensors") || has(names, ".safetensors.index.json")) {
        return read_safetensors_folder(folder, shown);
    }
    const std::vector<std::string> files = torch_files(folder, names);
    if (files.size() == 1 && rank_in_name(files.front()) < 0) {
        return read_torch_file(folder / files.front(),
                               (std::filesystem::path(shown) / files.front()).string(), files.front());
    }
    if (files.empty()) {
        throw Error(ErrorKind::input, shown,
                    "is a folder without a checkpoint; expected " + std::string(known));
    }
    const auto nameless =
        std::ranges::find_if(files, [](const auto& name) { return rank_in_name(name) < 0; });
    if (nameless != files.end()) {
        throw Error(ErrorKind::input, shown,
                    "has " + std::to_string(files.size()) + " files of torch.save, of which " + *nameless +
                        " has no rank in its name; name one of them");
    }
    return read_rank_files(folder, shown, files);
}

StoredCheckpoint read_file_of(const std::filesystem::path& path, const std::string& shown) {
    const std::string name = path.filename().string();
    const std::string head = read_head(path, head_bytes);
    if (name == ".metadata") {
        const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
        return read_dcp_folder(folder, folder.string());
    }
    if (name.ends_with(".distcp")) {
        throw Error(ErrorKind::input, shown,
                    "is one file of a checkpoint of torch.distributed.checkpoint; name its folder");
    }
    if (is_torch_file(path)) {
        return read_torch_file(path, shown, name);
    }
    if (name.ends_with(".safetensors.index.json") || head.find("\"weight_map\"") != std::string::npos) {
        return read_safetensors_index(path, shown);
    }
    if (name.ends_with(".safetensors") || (head.size() > 8 && head[8] == '{' && head[7] == '\0')) {
        return read_safetensors_file(path, shown);
    }
    throw Error(ErrorKind::input, shown,
                head.starts_with('\x80')
                    ? "is a bare pickle; expected a file of torch.save, which is an archive"
                    : "is no checkpoint that is known here; expected " + std::string(known));
}

/// Totals are exact in a double and in JavaScript, whatever reads them.
void check_totals(const StoredCheckpoint& checkpoint) {
    std::int64_t bytes = 0;
    for (const SavedTensor& tensor : checkpoint.tensors) {
        bytes = checked_add(bytes, tensor.bytes().count, checkpoint.path);
        bytes = checked_add(bytes, tensor.numel(), checkpoint.path);
    }
    for (const StoredCheckpoint& part : checkpoint.parts) {
        check_totals(part);
    }
}

}  // namespace

std::vector<std::string> files_in(const std::filesystem::path& folder) {
    std::error_code error;
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        if (entry.is_regular_file(error)) {
            out.push_back(entry.path().filename().string());
        }
    }
    if (error) {
        throw Error(ErrorKind::input, folder.string(), "cannot be read: " + error.message());
    }
    std::ranges::sort(out);
    return out;
}

StoredCheckpoint read_checkpoint(const std::string& path) {
    std::error_code ignored;
    StoredCheckpoint out =
        std::filesystem::is_directory(path, ignored) ? read_folder(path, path) : read_file_of(path, path);
    check_totals(out);
    return out;
}

bool is_checkpoint(const std::filesystem::path& path) {
    std::error_code ignored;
    const std::string name = path.filename().string();
    if (std::filesystem::is_regular_file(path, ignored)) {
        constexpr std::array<std::string_view, 5> endings{".distcp", ".pt", ".pth", ".bin", ".ckpt"};
        return name == ".metadata" || is_torch_file(path) ||
               std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
    }
    if (!std::filesystem::is_directory(path, ignored)) {
        return false;
    }
    for (const char* model : {"config.json", "model.safetensors.index.json", "model.safetensors"}) {
        if (has_file(path, model)) {
            return false;
        }
    }
    const std::vector<std::string> names = files_in(path);
    return is_dcp_folder(path) || has(names, ".safetensors") || is_accelerate(path, names) ||
           !torch_files(path, names).empty();
}

}  // namespace fsdplan
