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

/// What the files of the ranks have in common: "pytorch_model_fsdp_0" of "pytorch_model_fsdp_0_rank3.bin";
/// empty for the name of another file.
std::string_view part_of_rank(std::string_view name) {
    constexpr std::string_view word = "_rank";
    const std::string_view stem = name.substr(0, name.rfind('.'));
    const std::size_t at = stem.rfind(word);
    const bool has_rank = at != std::string_view::npos && at + word.size() < stem.size() &&
                          stem.find_first_not_of("0123456789", at + word.size()) == std::string_view::npos;
    return has_rank ? stem.substr(0, at) : std::string_view();
}

class Reader {
public:
    Reader(const std::filesystem::path& folder, const std::string& shown) : folder_(folder), shown_(shown) {
        out_.path = shown;
        out_.format = CheckpointFormat::accelerate;
    }

    StoredCheckpoint read() {
        for (const std::string& name : folders_in(folder_)) {
            if (begins_with_one_of(name, parts) && is_dcp_folder(folder_ / name)) {
                add(read_dcp_folder(folder_ / name, shown(name)), name);
            }
        }
        for (const std::string& name : files_in(folder_)) {
            take_file(name);
        }
        for (const auto& [part, names] : of_ranks_) {
            add(read_rank_files(folder_, shown_, names), part);
        }
        if (has_safetensors_) {
            add(read_safetensors_folder(folder_, shown_), "model.safetensors");
        }
        if (out_.parts.empty()) {
            throw Error(ErrorKind::input, shown_,
                        "looks like a folder of accelerate, but no model or optimizer in it can be read");
        }
        return std::move(out_);
    }

private:
    std::string shown(const std::string& name) const {
        return (std::filesystem::path(shown_) / name).string();
    }

    void take_file(const std::string& name) {
        if (name.ends_with(".safetensors")) {
            has_safetensors_ = true;
        } else if (begins_with_one_of(name, parts) && is_torch_file(folder_ / name)) {
            if (const std::string_view part = part_of_rank(name); !part.empty()) {
                of_ranks_[std::string(part)].push_back(name);
            } else {
                add(read_torch_file(folder_ / name, shown(name), name), name);
            }
        } else if (begins_with_one_of(name, others)) {
            out_.files.push_back(
                {.name = name, .bytes = static_cast<std::int64_t>(size_of_file(folder_ / name))});
        }
    }

    void add(StoredCheckpoint part, const std::string& name) {
        part.path = name;
        out_.ranks = std::max(out_.ranks, part.ranks);
        out_.optimizer = std::max(out_.optimizer, part.optimizer);
        out_.parts.push_back(std::move(part));
    }

    std::filesystem::path folder_;
    std::string shown_;
    StoredCheckpoint out_;
    std::map<std::string, std::vector<std::string>> of_ranks_;  // files by their part
    bool has_safetensors_ = false;
};

}  // namespace

StoredCheckpoint read_accelerate_folder(const std::filesystem::path& folder, const std::string& shown) {
    return Reader(folder, shown).read();
}

}  // namespace fsdplan
