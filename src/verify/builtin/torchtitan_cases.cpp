#include <algorithm>
#include <filesystem>

#include "fsdplan/frontend.hpp"
#include "verify/format.hpp"
#include "verify/frontend_words.hpp"
#include "verify/nearby_file.hpp"
#include "verify/unit_rows.hpp"

// The fully_shard calls of torchtitan (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.torchtitan-cases";

/// The model of a pipeline stage: children of the root are absent.
ModelGraph without_children(const ModelGraph& graph, const std::vector<std::string>& names) {
    ModelGraph out;
    out.classes = graph.classes;
    out.tensors = graph.tensors;
    std::vector<std::int32_t> moved(graph.modules.size(), -1);
    const auto copy = [&](const auto& self, ModuleIndex m) -> ModuleIndex {
        if (moved[at(m)] < 0) {
            moved[at(m)] = static_cast<std::int32_t>(out.modules.size());
            ModuleNode node = graph.modules[at(m)];
            if (m == graph.root) {
                std::erase_if(node.children, [&](const ChildSlot& slot) {
                    return std::ranges::find(names, slot.name) != names.end();
                });
            }
            out.modules.emplace_back();
            for (ChildSlot& slot : node.children) {
                slot.module = self(self, slot.module);
            }
            out.modules[static_cast<std::size_t>(moved[at(m)])] = std::move(node);
        }
        return ModuleIndex{moved[at(m)]};
    };
    out.root = copy(copy, graph.root);
    return out;
}

/// The only parameter of a child of the root, if it has one.
TensorSlot* weight_of(ModelGraph& graph, std::string_view name) {
    const std::vector<ChildSlot>& slots = graph.modules[at(graph.root)].children;
    const auto child = std::ranges::find(slots, name, &ChildSlot::name);
    if (child == slots.end()) {
        return nullptr;
    }
    std::vector<TensorSlot>& parameters = graph.modules[at(child->module)].parameters;
    return parameters.size() == 1 ? &parameters.front() : nullptr;
}

/// lm_head.weight becomes tok_embeddings.weight.
void tie_weights(ModelGraph& graph) {
    const TensorSlot* embedding = weight_of(graph, "tok_embeddings");
    TensorSlot* head = weight_of(graph, "lm_head");
    if (embedding != nullptr && head != nullptr) {
        head->tensor = embedding->tensor;
    }
}

std::string text_or(const std::optional<json::Value>& value, const char* usual) {
    return value ? std::string(value->string()) : usual;
}

NotedArguments noted(const Unit& unit, const json::Value& training) {
    NotedArguments out;
    out["mp_policy"] =
        R"({"MixedPrecisionPolicy": {"param_dtype": ")" +
        text_or(training.find("mixed_precision_param"), "bfloat16") +
        R"(", "reduce_dtype": "float32", "output_dtype": null, "cast_forward_inputs": false}})";
    if (const auto offload = training.find("enable_cpu_offload"); offload && offload->boolean()) {
        out["offload_policy"] = R"({"CPUOffloadPolicy": {"pin_memory": true}})";
    }
    if (const std::string* reshard = find_argument(unit.arguments, "reshard_after_forward")) {
        out["reshard_after_forward"] = *reshard;
    }
    return out;
}

class Recording {
public:
    Recording(const json::Value& recording, std::string path)
        : path_(std::move(path)),
          file_(std::filesystem::path(path_).filename().string()),
          units_(recording) {}

    void replay(const json::Value& row, std::size_t number, Verification& out) const {
        const std::string name = file_ + " case " + std::to_string(number);
        const json::Value parallelism = row.at("parallelism");
        if (const json::Value backend = parallelism.at("spmd_backend");
            backend.string() != "partial_dtensor") {
            skip_case(
                name,
                "the SPMD backend " + backend.shown() + " starts from parameters that are DTensors already",
                out);
            return;
        }
        const std::string flavor(row.at("flavor").string());
        const auto tree_file = find_nearby(path_, "llama3-" + flavor + ".tree.json");
        if (!tree_file) {
            skip_case(name, "its module tree is nowhere above it", out);
            return;
        }
        CaseReport report(name);
        compare(row, import_model(tree_file->string()), report);
        report.close(out);
    }

private:
    void compare(const json::Value& row, ModelGraph graph, CaseReport& report) const {
        TorchtitanSettings settings;
        settings.weights_tied = row.at("enable_weight_tying").boolean();
        if (settings.weights_tied) {
            tie_weights(graph);
        }
        if (const auto absent = row.find("modules_set_to_none")) {
            graph = without_children(graph, absent->strings());
        }
        const json::Value parallelism = row.at("parallelism");
        settings.reshard_after_forward = text_or(parallelism.find("fsdp_reshard_after_forward"), "default");
        const auto pipeline = parallelism.find("pipeline_parallel_degree");
        settings.pipeline = pipeline && pipeline->integer(1) > 1;

        const ModuleTree tree = flatten(graph);
        const WrapPlan plan = wrap(tree, torchtitan_calls(tree, settings), {});
        compare_error(row, "error", shown_error(plan.construction_error()), report);
        const json::Value expected = row.at("expected");
        report.compare("number of units", std::to_string(expected.size()), std::to_string(plan.units.size()));
        std::size_t i = 0;
        for (const json::Value index : expected.elements()) {
            if (i == plan.units.size()) {
                break;
            }
            compare_unit(units_.at(index), plan.units[i], tree, noted(plan.units[i], row.at("training")),
                         "unit " + std::to_string(i), report);
            ++i;
        }
    }

    std::string path_;
    std::string file_;
    UnitRows units_;
};

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const Recording cases(recording, path);
    std::size_t number = 0;
    for (const json::Value row : recording.at("cases").elements()) {
        cases.replay(row, number++, out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo torchtitan_cases;
constinit const RecordingInfo torchtitan_cases{
    .name = "torchtitan",
    .help = "units of torchtitan's models (JSON with the format fsdplan.torchtitan-cases)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
