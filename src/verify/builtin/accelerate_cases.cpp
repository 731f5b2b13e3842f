#include <algorithm>
#include <filesystem>

#include "fsdplan/frontend.hpp"
#include "verify/digest.hpp"
#include "verify/format.hpp"
#include "verify/frontend_words.hpp"
#include "verify/nearby_file.hpp"
#include "verify/unit_rows.hpp"

// Accelerator.prepare() on real models: the units and what FSDP is called with (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.accelerate-cases";
constexpr const char* wrapper_class =
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.CheckpointWrapper";

std::optional<std::string> path_in(const json::Value& hints, std::string_view key) {
    const json::Value value = hints.at(key);
    return value.is_null() ? std::nullopt : std::optional(std::string(value.string()));
}

ModelHints recorded_hints(const json::Value& hints) {
    const json::Value classes = hints.at("no_split_modules");
    return {.no_split_classes = classes.is_null() ? std::vector<std::string>{} : classes.strings(),
            .input_embeddings = path_in(hints, "input_embeddings"),
            .output_embeddings = path_in(hints, "output_embeddings"),
            .final_norm = path_in(hints, "final_norm"),
            .weights_tied = hints.at("weights_tied").boolean()};
}

std::string policy_text(const PolicySpec& policy) {
    if (policy.kind != PolicySpec::Kind::recursive) {
        return "null";
    }
    const PolicySpec::Member& member = policy.members.front();
    if (member.min_num_params) {
        return R"({"partial": "size_based_auto_wrap_policy", "min_num_params": )" +
               std::to_string(static_cast<std::int64_t>(*member.min_num_params)) + "}";
    }
    std::vector<std::string> classes = member.classes;
    std::ranges::sort(classes);
    std::string out;
    for (const std::string& name : classes) {
        out += (out.empty() ? "" : ", ") + json::quote(name);
    }
    return R"({"partial": "transformer_auto_wrap_policy", "transformer_layer_cls": [)" + out + "]}";
}

std::string count_text(bool given, std::size_t count) {
    return given ? std::to_string(count) : "null";
}

/// What FullyShardedDataParallel, or the first fully_shard, is called with. `ties`: the model's class names
/// weights that it ties again.
Fields call_arguments(const AcceleratePlugin& plugin, const AcceleratedModel& model, bool ties) {
    const Fields fields = shown_fields(plugin);
    const std::string& precision = fields.at("mixed_precision_policy");
    const bool ignores = plugin.ignored_modules.has_value();
    if (plugin.version == 2) {
        const std::string* reshard =
            find_argument(model.policy.calls.front().arguments, "reshard_after_forward");
        return {{"reshard_after_forward", reshard == nullptr ? "null" : *reshard},
                {"offload_policy", fields.at("cpu_offload")},
                {"mp_policy", precision != "null"
                                  ? precision
                                  : R"({"MixedPrecisionPolicy": {"param_dtype": null, "reduce_dtype": null, )"
                                    R"("output_dtype": null, "cast_forward_inputs": true}})"},
                {"ignored_params", count_text(ignores, model.options.ignored_parameters.size())}};
    }
    const std::string& init = fields.at("param_init_fn");
    return {{"sharding_strategy", fields.at("sharding_strategy")},
            {"cpu_offload", fields.at("cpu_offload")},
            {"auto_wrap_policy", policy_text(model.policy)},
            {"mixed_precision", precision},
            {"sync_module_states", fields.at("sync_module_states")},
            {"backward_prefetch", fields.at("backward_prefetch")},
            {"forward_prefetch", fields.at("forward_prefetch")},
            {"use_orig_params", fields.at("use_orig_params")},
            {"param_init_fn", ties && init != "null" ? "\"param_init_fn_tied_param\"" : init},
            {"ignored_modules", count_text(ignores, model.options.ignored_modules.size())},
            {"limit_all_gathers", fields.at("limit_all_gathers")}};
}

class Recording {
public:
    Recording(const json::Value& recording, const ModuleTree& tree, std::string file)
        : tree_(tree),
          hints_(recorded_hints(recording.at("hints"))),
          ties_(!recording.at("hints").at("tied_weights_keys").is_null()),
          world_size_(static_cast<int>(recording.at("world_size").integer(1, 1 << 24))),
          file_(std::move(file)),
          units_(recording) {}

    void replay(const json::Value& row, std::size_t number, Verification& out) const {
        CaseReport report(file_ + " case " + std::to_string(number));
        const auto environment = accelerate_environment(python_arguments(row.at("fsdp_config")),
                                                        row.at("mixed_precision").string());
        if (const auto* error = std::get_if<FrontendError>(&environment)) {
            compare_error(row, "error", shown_error(*error), report);
        } else {
            prepare(row, std::get<Environment>(environment), report);
        }
        report.close(out);
    }

private:
    void prepare(const json::Value& row, const Environment& environment, CaseReport& report) const {
        const std::string precision(row.at("mixed_precision").string());
        PythonArguments arguments;
        if (precision != "no") {
            arguments["mixed_precision_policy"] = precision;
        }
        const auto plugin = accelerate_plugin(arguments, environment);
        if (const auto* error = std::get_if<FrontendError>(&plugin)) {
            compare_error(row, "error", shown_error(*error), report);
            return;
        }
        const auto& settings = std::get<AcceleratePlugin>(plugin);
        const auto model = accelerate_prepare(tree_, hints_, settings, world_size_);
        if (const auto* error = std::get_if<FrontendError>(&model)) {
            compare_error(row, "error", shown_error(*error), report);
            return;
        }
        compare_model(row, settings, std::get<AcceleratedModel>(model), report);
    }

    void compare_model(const json::Value& row, const AcceleratePlugin& plugin, const AcceleratedModel& model,
                       CaseReport& report) const {
        const WrapPlan plan = wrap(tree_, model.policy, model.options);
        compare_error(row, "error", shown_error(plan.construction_error()), report);
        compare_error(row, "first_forward_error", shown_error(forward_error(plan, plugin.version)), report);
        if (const auto recorded = row.find("arguments")) {
            compare_fields("argument", recorded_fields(*recorded), call_arguments(plugin, model, ties_),
                           report);
        }
        if (const auto expected = row.find("expected")) {
            compare_units(*expected, plugin, model, plan, report);
            compare_checkpoints(row, model, report);
        }
    }

    // The recorder's first forward goes as far as the check of shared parameters; version 1 has none.
    static const Diagnostic* forward_error(const WrapPlan& plan, std::int64_t version) {
        const auto found =
            std::ranges::find(plan.diagnostics, WrapRule::tied_across_groups, &Diagnostic::rule);
        return version != 2 || found == plan.diagnostics.end() ? nullptr : &*found;
    }

    void compare_units(const json::Value& expected, const AcceleratePlugin& plugin,
                       const AcceleratedModel& model, const WrapPlan& plan, CaseReport& report) const {
        const auto wrapped = [&](const Unit& unit) {
            return plugin.version == 2 &&
                   std::ranges::find(model.checkpointed, unit.path) != model.checkpointed.end();
        };
        const auto wrappers = static_cast<std::size_t>(std::ranges::count_if(plan.units, wrapped));
        report.compare("number of units", std::to_string(expected.size()),
                       std::to_string(plan.units.size() + wrappers));
        auto row = expected.elements().begin();
        const auto end = expected.elements().end();
        std::size_t number = 0;
        for (const Unit& unit : plan.units) {
            if (row == end) {
                return;
            }
            const std::string where = "unit " + std::to_string(number++);
            compare_unit(units_.at(*row), unit, tree_, noted(unit, plugin, model), where, report);
            ++row;
            if (wrapped(unit) && row != end) {  // the wrapper's own call finds nothing left
                const json::Value empty = units_.at(*row);
                report.compare(where + " wrapper", std::string(empty.at("class").string()), wrapper_class);
                report.compare(where + " wrapper module", std::string(empty.at("module").string()),
                               unit.path);
                report.compare(where + " wrapper numel", empty.at("numel").shown(), "0");
                ++row;
            }
        }
    }

    /// Version 1: units that keep full precision; version 2: reshard_after_forward unlike the configured one.
    static NotedArguments noted(const Unit& unit, const AcceleratePlugin& plugin,
                                const AcceleratedModel& model) {
        NotedArguments out;
        if (plugin.version == 2) {
            const std::string* given = find_argument(unit.arguments, "reshard_after_forward");
            const std::string value = given == nullptr ? "null" : *given;
            if (value != shown_fields(plugin).at("reshard_after_forward")) {
                out["reshard_after_forward"] = value;
            }
        } else if (const std::string* kept = find_argument(unit.arguments, "mixed_precision");
                   kept != nullptr && model.options.mixed_precision && *kept == "null") {
            out["mixed_precision"] = *kept;
        }
        return out;
    }

    static void compare_checkpoints(const json::Value& row, const AcceleratedModel& model,
                                    CaseReport& report) {
        const auto recorded = row.find("checkpointed");
        std::string expected = "0 " + sha256_of_lines({});
        if (recorded && recorded->is_array()) {
            expected = std::to_string(recorded->size()) + " " + sha256_of_lines(recorded->strings());
        } else if (recorded) {
            expected = recorded->at("count").shown() + " " + std::string(recorded->at("sha256").string());
        }
        report.compare("checkpointed modules", expected,
                       std::to_string(model.checkpointed.size()) + " " + sha256_of_lines(model.checkpointed));
    }

    const ModuleTree& tree_;
    ModelHints hints_;
    bool ties_;
    int world_size_;
    std::string file_;
    UnitRows units_;
};

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string file = std::filesystem::path(path).filename().string();
    const json::Value named = recording.at("tree");
    const auto tree_file = named.is_null() ? std::nullopt : find_nearby(path, named.string());
    std::size_t number = 0;
    if (!tree_file) {
        for (std::size_t i = 0; i < recording.at("cases").size(); ++i) {
            skip_case(file + " case " + std::to_string(i), "its module tree is nowhere above it", out);
        }
        return;
    }
    const ModuleTree tree = flatten(import_model(tree_file->string()));
    const Recording cases(recording, tree, file);
    for (const json::Value row : recording.at("cases").elements()) {
        cases.replay(row, number++, out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo accelerate_cases;
constinit const RecordingInfo accelerate_cases{
    .name = "accelerate",
    .help = "units and calls of Accelerator.prepare() (JSON with the format fsdplan.accelerate-cases)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
