#include <filesystem>
#include <map>

#include "fsdplan/frontend.hpp"
#include "verify/accelerate_models.hpp"
#include "verify/digest.hpp"
#include "verify/format.hpp"
#include "verify/frontend_words.hpp"
#include "verify/words.hpp"

// In which dtype accelerate stores what was loaded in another (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.accelerate-precision";
constexpr int ranks = 8;

DType required_dtype(const json::Value& value) {
    const auto dtype = dtype_from_name(value.string());
    if (!dtype) {
        value.fail("the name of a dtype");
    }
    return *dtype;
}

/// Version 1: of each unit.
std::string unit_dtypes(const ModuleTree& tree, const AcceleratedModel& model, std::string_view precision) {
    std::string out;
    for (const Unit& unit : wrap(tree, model.policy, model.options).units) {
        const DType loaded = tree.tensors[at(unit.parameters.front())].dtype;
        out += "\"" + unit.path + "\" " +
               std::string(name(accelerate_stored(loaded, unit.requires_grad, precision))) + "; ";
    }
    return out;
}

std::string recorded_unit_dtypes(const json::Value& rows) {
    std::string out;
    for (const json::Value row : rows.elements()) {
        const std::vector<std::string> pair = row.strings();
        if (pair.size() != 2) {
            row.fail("a path and a dtype");
        }
        out += "\"" + pair[0] + "\" " + pair[1] + "; ";
    }
    return out;
}

/// Version 2: the parameters of each dtype, as their number and a digest of their paths.
std::string parameter_dtypes(const ModuleTree& tree, std::string_view precision) {
    std::map<std::string, std::vector<std::string>> paths;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        const std::span<const TensorIndex> parameters = tree.parameters(module);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const Tensor& t = tree.tensors[at(parameters[i])];
            paths[std::string(name(accelerate_stored(t.dtype, t.requires_grad, precision)))].push_back(
                join_path(tree.path(module), tree.parameter_names(module)[i]));
        }
    }
    std::string out;
    for (const auto& [dtype, list] : paths) {
        out += dtype + " " + std::to_string(list.size()) + " " + sha256_of_lines(list) + "; ";
    }
    return out;
}

std::string recorded_parameter_dtypes(const json::Value& object) {
    std::map<std::string, std::string> lines;
    for (const json::Value list : object.members()) {
        lines[std::string(list.key())] =
            list.is_array() ? std::to_string(list.size()) + " " + sha256_of_lines(list.strings())
                            : list.at("count").shown() + " " + std::string(list.at("sha256").string());
    }
    std::string out;
    for (const auto& [dtype, line] : lines) {
        out += dtype + " " + line + "; ";
    }
    return out;
}

void replay_row(const json::Value& row, CaseReport& report) {
    const std::string precision(row.at("mixed_precision").string());
    PythonArguments arguments{{"fsdp_version", row.at("fsdp_version").integer()},
                              {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}};
    if (precision != "no") {
        arguments["mixed_precision_policy"] = precision;
    }
    const auto made = accelerate_plugin(arguments, {});
    if (const auto* error = std::get_if<FrontendError>(&made)) {
        report.compare("error", "none", shown_error(*error));
        return;
    }
    const auto& plugin = std::get<AcceleratePlugin>(made);
    report.compare("policy", json_text(row.at("policy")), shown_fields(plugin).at("mixed_precision_policy"));
    const ModelGraph graph =
        small_llama(required_dtype(row.at("loaded_dtype")), row.at("first_layer_frozen").boolean());
    const ModuleTree tree = flatten(graph);
    if (const auto units = row.find("unit_dtypes")) {
        const auto model = accelerate_prepare(tree, model_hints(graph, tree), plugin, ranks);
        report.compare("dtypes of units", recorded_unit_dtypes(*units),
                       unit_dtypes(tree, std::get<AcceleratedModel>(model), precision));
    } else {
        report.compare("dtypes of parameters", recorded_parameter_dtypes(row.at("parameter_dtypes")),
                       parameter_dtypes(tree, precision));
    }
}

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string file = std::filesystem::path(path).filename().string();
    std::size_t number = 0;
    for (const json::Value row : recording.at("rows").elements()) {
        CaseReport report(file + " row " + std::to_string(number++));
        replay_row(row, report);
        report.close(out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo accelerate_precisions;
constinit const RecordingInfo accelerate_precisions{
    .name = "accelerate precision",
    .help =
        "dtypes in which accelerate stores parameters (JSON with the format fsdplan.accelerate-precision)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
