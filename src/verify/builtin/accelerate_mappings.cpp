#include <filesystem>

#include "fsdplan/frontend.hpp"
#include "verify/format.hpp"
#include "verify/frontend_words.hpp"
#include "verify/unit_rows.hpp"

// What accelerate and the transformers Trainer make of each setting (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.accelerate-mapping";

/// The plugin's fields, those that differ from its version's defaults or all of another version, or its
/// error.
Fields outcome(const OrRefused<AcceleratePlugin>& plugin, const Fields& defaults) {
    if (const auto* error = std::get_if<FrontendError>(&plugin)) {
        return {{"error", shown_error(*error)}};
    }
    return changes(defaults, shown_fields(std::get<AcceleratePlugin>(plugin)));
}

Fields defaults_of(const PythonArguments& arguments, const Environment& environment) {
    const auto plugin = accelerate_plugin(arguments, environment);
    return std::holds_alternative<AcceleratePlugin>(plugin) ? shown_fields(std::get<AcceleratePlugin>(plugin))
                                                            : Fields{};
}

Fields recorded_outcome(const json::Value& row) {
    if (const auto error = row.find("error")) {
        return {{"error", shown_error(error->at("type").string(), error->at("reason").string())}};
    }
    return recorded_fields(row);
}

class Mapping {
public:
    Mapping(const json::Value& recording, std::string file, Verification& out)
        : recording_(recording), file_(std::move(file)), out_(out) {}

    void replay() {
        each("plugin", [](const json::Value& row, CaseReport& report) {
            PythonArguments arguments = python_arguments(row.at("plugin"));
            const PythonArguments version{{"fsdp_version", row.at("fsdp_version").integer()}};
            arguments.insert(version.begin(), version.end());
            compare_fields("plugin", recorded_outcome(row.at("changes")),
                           outcome(accelerate_plugin(arguments, {}), defaults_of(version, {})), report);
        });
        each("environment", [](const json::Value& row, CaseReport& report) {
            const Environment environment = environment_of(row.at("env"));
            const Environment version{
                {"FSDP_VERSION", std::string(row.at("env").at("FSDP_VERSION").string())}};
            compare_fields("plugin", recorded_outcome(row.at("changes")),
                           outcome(accelerate_plugin({}, environment), defaults_of({}, version)), report);
        });
        each("yaml", launch);
        each("to_fsdp2", [](const json::Value& row, CaseReport& report) {
            compare_fields("section", recorded_fields(row.at("out")),
                           shown_fields(accelerate_to_fsdp2(python_arguments(row.at("in")))), report);
        });
        each("training_arguments", trainer);
    }

private:
    template <typename Replay>
    void each(const char* table, const Replay& replay) {
        std::size_t number = 0;
        for (const json::Value row : recording_.at(table).elements()) {
            CaseReport report(file_ + " " + table + " " + std::to_string(number++));
            replay(row, report);
            report.close(out_);
        }
    }

    static Environment environment_of(const json::Value& object) {
        Environment out;
        for (const json::Value member : object.members()) {
            out[std::string(member.key())] = member.string();
        }
        return out;
    }

    static void launch(const json::Value& row, CaseReport& report) {
        const auto environment = accelerate_environment(python_arguments(row.at("fsdp_config")),
                                                        row.at("mixed_precision").string());
        if (const auto* error = std::get_if<FrontendError>(&environment)) {
            compare_fields("environment", recorded_outcome(row.at("env")), {{"error", shown_error(*error)}},
                           report);
            return;
        }
        const auto& variables = std::get<Environment>(environment);
        Fields shown;
        for (const auto& [name, value] : variables) {
            shown[name] = json::quote(value);
        }
        compare_fields("environment", recorded_outcome(row.at("env")), shown, report);
        if (const auto plugin = row.find("plugin")) {
            const PythonArguments version{{"fsdp_version", variables.at("FSDP_VERSION")}};
            compare_fields("plugin", recorded_outcome(*plugin),
                           outcome(accelerate_plugin({}, variables), defaults_of(version, {})), report);
        }
    }

    static void trainer(const json::Value& row, CaseReport& report) {
        TrainerSettings settings{.fsdp = python_value(row.at("arguments").at("fsdp")), .config = {}};
        if (const auto config = row.at("arguments").find("fsdp_config")) {
            settings.config = python_arguments(*config);
        }
        const auto answer = trainer_plugin_arguments(settings);
        if (const auto* error = std::get_if<FrontendError>(&answer)) {
            compare_error(row, "error", shown_error(*error), report);
            return;
        }
        compare_error(row, "error", "none", report);
        const auto& arguments = std::get<std::optional<PythonArguments>>(answer);
        const auto recorded = row.find("plugin_arguments");
        if (!recorded || recorded->is_null() || !arguments) {
            report.compare("plugin arguments", recorded && recorded->is_null() ? "none" : "some",
                           arguments ? "some" : "none");
            return;
        }
        compare_fields("argument", recorded_fields(*recorded), shown_fields(*arguments), report);
        const PythonValue version = arguments->at("fsdp_version");
        const bool known = version == PythonValue(std::int64_t{1}) || version == PythonValue(std::int64_t{2});
        compare_fields("plugin", recorded_outcome(row.at("plugin")),
                       outcome(accelerate_plugin(*arguments, {}),
                               known ? defaults_of({{"fsdp_version", version}}, {}) : Fields{}),
                       report);
    }

    json::Value recording_;
    std::string file_;
    Verification& out_;
};

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    Mapping(recording, std::filesystem::path(path).filename().string(), out).replay();
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo accelerate_mappings;
constinit const RecordingInfo accelerate_mappings{
    .name = "accelerate mapping",
    .help =
        "what accelerate and the Trainer make of settings (JSON with the format fsdplan.accelerate-mapping)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
