#include "verify/cuda_memory_model.hpp"

#include <filesystem>

#include "verify/nearby_file.hpp"
#include "verify/traffic.hpp"

namespace fsdplan {
namespace {

std::string file_or_alias(const std::string& path, const std::string& name) {
    if (const auto file = json_file_in({std::filesystem::path(path).parent_path() / "models"}, name)) {
        return file->string();
    }
    for (const LibraryModel& known : library_models()) {
        if (known.folder == name) {
            return name;
        }
        for (const std::string& alias : known.aliases) {
            if (alias == name) {
                return name;
            }
        }
    }
    return {};
}

/// The adapters that the recorder puts around attention's projections, in the dtype of the model.
LoraOptions adapters(int rank) {
    LoraOptions options;
    options.rank = rank;
    options.targets = {"q_proj", "v_proj"};
    options.autocast_adapter_dtype = false;
    return options;
}

}  // namespace

RecordedModel recorded_model(const std::string& path, const json::Value& recorded_case) {
    const std::string name(recorded_case.at("model").string());
    const std::string what = file_or_alias(path, name);
    if (what.empty()) {
        return {.graph = std::nullopt,
                .reason =
                    "its model " + json::quote(name) + " is neither in models/ beside it nor in the library"};
    }
    const auto storage = recorded_case.find("storage");
    RecordedModel out{
        .graph = import_model(what, {.dtype = storage ? recorded_dtype(*storage) : DType::float32}),
        .reason = {}};
    const auto lora = recorded_case.find("lora");
    constexpr std::int64_t most_rank = 1 << 20U;
    if (const std::int64_t rank = lora ? lora->integer(0, most_rank) : 0; rank > 0) {
        try {
            out.graph = with_lora(*out.graph, adapters(static_cast<int>(rank)));
        } catch (const Error& error) {
            return {.graph = std::nullopt, .reason = std::string("no adapters: ") + error.what()};
        }
    }
    return out;
}

void untie(ModelGraph& graph) {
    std::vector<char> seen(graph.tensors.size(), 0);
    for (ModuleNode& module : graph.modules) {
        for (TensorSlot& slot : module.parameters) {
            if (seen[at(slot.tensor)] != 0) {
                const Tensor copy = graph.tensors[at(slot.tensor)];
                slot.tensor = static_cast<TensorIndex>(graph.tensors.size());
                graph.tensors.push_back(copy);
                seen.push_back(0);
            }
            seen[at(slot.tensor)] = 1;
        }
    }
}

}  // namespace fsdplan
