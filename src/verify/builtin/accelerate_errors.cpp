#include <algorithm>
#include <array>
#include <filesystem>

#include "fsdplan/frontend.hpp"
#include "verify/accelerate_models.hpp"
#include "verify/format.hpp"
#include "verify/frontend_words.hpp"
#include "verify/unit_rows.hpp"

// What accelerate refuses and accepts (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.accelerate-errors";
constexpr int ranks = 8;

// About how prepare() is called, which settings do not tell.
constexpr std::array<std::string_view, 3> reasons_of_the_program{
    "FSDP2 prepare without an optimizer", "prepare_model() instead of prepare() with FSDP2",
    "FSDP2 prepare with two models"};

std::string raised(const AcceleratePlugin& plugin, const ModelGraph& graph) {
    const ModuleTree tree = flatten(graph);
    const auto model = accelerate_prepare(tree, model_hints(graph, tree), plugin, ranks);
    if (const auto* error = std::get_if<FrontendError>(&model)) {
        return shown_error(*error);
    }
    const auto& prepared = std::get<AcceleratedModel>(model);
    return shown_error(wrap(tree, prepared.policy, prepared.options).construction_error());
}

std::string raised(const json::Value& row) {
    const std::string precision(row.at("mixed_precision").string());
    const auto environment = accelerate_environment(python_arguments(row.at("fsdp_config")), precision);
    if (const auto* error = std::get_if<FrontendError>(&environment)) {
        return shown_error(*error);
    }
    const auto plugin = accelerate_plugin({}, std::get<Environment>(environment));
    if (const auto* error = std::get_if<FrontendError>(&plugin)) {
        return shown_error(*error);
    }
    return raised(std::get<AcceleratePlugin>(plugin), small_recorded_model(row.at("name").string()));
}

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string file = std::filesystem::path(path).filename().string();
    for (const json::Value row : recording.at("rows").elements()) {
        const std::string name = file + " " + std::string(row.at("name").string());
        const auto error = row.find("error");
        if (error && std::ranges::find(reasons_of_the_program, error->at("reason").string()) !=
                         reasons_of_the_program.end()) {
            skip_case(name, "about the calling program, which settings do not tell", out);
            continue;
        }
        CaseReport report(name);
        compare_error(row, "error", raised(row), report);
        report.close(out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo accelerate_errors;
constinit const RecordingInfo accelerate_errors{
    .name = "accelerate errors",
    .help = "what accelerate refuses (JSON with the format fsdplan.accelerate-errors)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
