#include <algorithm>
#include <array>
#include <map>
#include <system_error>

#include "base/file.hpp"
#include "checkpoint/stored/readers.hpp"
#include "checkpoint/stored/torch_file.hpp"

// What accelerate's save_state and transformers' Trainer leave in a folder: model and optimizer as DCP
// folders, as files of torch.save of all or of each rank, or as safetensors files; and small files beside.
namespace fsdplan {
namespace {

/// How the names of a part begin.
constexpr std::array<std::string_view, 3> parts{"pytorch_model", "model", "optimizer"};
/// Files with no tensors that a model or optimizer needs.
constexpr std::array<std::string_view, 9> others{"random_states", "rng_state",         "scheduler",
                                                 "scaler",        "sampler",           "training_args",
                                                 "trainer_state", "custom_checkpoint", "dl_state_dict"};

bool begins_with_one_of(std::string_view name, std::span<const std::string_view> beginnings) {
    return std::ranges::any_of(beginnings, [&](std::string_view b) { return name.starts_with(b); });
}

std::vector<std::string> folders_in(const std::filesystem::path& folder) {
    std::vector<std::string> out;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        if (entry.is_directory(error)) {
            out.push_back(entry.path().filename().string());
        }
    }
    std::ranges::sort(out);
    return out;
}

/// "pytorch_model_fsdp_0_rank3.bin" without its rank and ending; the whole stem of other names.
std::string_view group_of(std::string_view name, bool& is_of_rank) {
    const std::string_view stem = name.substr(0, name.rfind('.'));
    const std::size_t rank = stem.rfind("_rank");
    is_of_rank = rank != std::string_view::npos &&
                 stem.find_first_not_of("0123456789", rank + 5) == std::string_view::npos;
    return is_of_rank ? stem.substr(0, rank) : stem;
}

}  // namespace

StoredCheckpoint read_accelerate_folder(const std::filesystem::path& folder, const std::string& shown) {
    StoredCheckpoint out;
    out.path = shown;
    out.format = CheckpointFormat::accelerate;
    const auto add = [&](StoredCheckpoint part, std::string name) {
        part.path = std::move(name);
        out.ranks = std::max(out.ranks, part.ranks);
        out.optimizer = std::max(out.optimizer, part.optimizer);
        out.parts.push_back(std::move(part));
    };
    for (const std::string& name : folders_in(folder)) {
        if (begins_with_one_of(name, parts) && is_dcp_folder(folder / name)) {
            add(read_dcp_folder(folder / name, (std::filesystem::path(shown) / name).string()), name);
        }
    }
    std::map<std::string, std::vector<std::string>, std::less<>> of_ranks;
    bool has_safetensors = false;
    for (const std::string& name : files_in(folder)) {
        bool is_of_rank = false;
        const std::string group(group_of(name, is_of_rank));
        if (name.ends_with(".safetensors")) {
            has_safetensors = true;
        } else if (begins_with_one_of(name, parts) && is_torch_file(folder / name)) {
            if (is_of_rank) {
                of_ranks[group].push_back(name);
            } else {
                add(read_torch_file(folder / name, (std::filesystem::path(shown) / name).string(), name),
                    name);
            }
        } else if (begins_with_one_of(name, others)) {
            out.files.push_back(
                {.name = name, .bytes = static_cast<std::int64_t>(size_of_file(folder / name))});
        }
    }
    for (const auto& [group, names] : of_ranks) {
        add(read_rank_files(folder, shown, names), group);
    }
    if (has_safetensors) {
        add(read_safetensors_folder(folder, shown), "model.safetensors");
    }
    return out;
}

}  // namespace fsdplan
