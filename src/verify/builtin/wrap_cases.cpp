#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/verify.hpp"
#include "fsdplan/wrap.hpp"
#include "verify/case_report.hpp"
#include "verify/digest.hpp"
#include "verify/unit_rows.hpp"
#include "verify/wrap_case.hpp"

// Wrap boundaries recorded from PyTorch: <model>.units.json[.gz] beside <model>.tree.json[.gz]
// (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::array<std::string_view, 2> endings{".units.json", ".units.json.gz"};

/// A unit's arguments as the recorder notes them: what differs from the root's.
NotedArguments noted_arguments(const Unit& unit, const WrapOptions& options, bool constructed) {
    NotedArguments out;
    if (constructed && options.world_size == 1) {
        out["sharding_strategy"] = "\"NO_SHARD\"";  // what the constructor makes of every strategy then
    }
    for (const auto& [name, value] : unit.arguments) {
        const bool noted = name == "sharding_strategy" ? value != "\"FULL_SHARD\"" && !out.contains(name)
                           : name == "mixed_precision" ? options.mixed_precision && value == "null"
                                                       : !constructed && value != "null";
        if (noted) {
            out[name] = value;
        }
    }
    return out;
}

class WrapRecording {
public:
    WrapRecording(const json::Value& file, const ModuleTree& tree, std::string name)
        : file_(file), tree_(tree), name_(std::move(name)), units_(file) {
        const std::vector<std::string> hazards = file.at("hazards").strings();
        shared_modules_ = std::ranges::find(hazards, "shared-module") != hazards.end();
    }

    void replay(Verification& out) const {
        std::size_t number = 0;
        for (const json::Value row : file_.at("cases").elements()) {
            CaseReport report(name_ + " case " + std::to_string(number++) + " (" +
                              std::string(row.at("policy").string()) + ")");
            try {
                replay_case(row, report);
            } catch (const Error& error) {
                report.compare("replay", "an answer", error.what());
            }
            report.close(out);
        }
        replay_thresholds(out);
    }

private:
    void replay_case(const json::Value& row, CaseReport& report) const {
        const WrapOptions options = recorded_options(file_, row);
        const WrapPlan plan = wrap(tree_, recorded_policy(row), options);
        compare_error(row, "error", shown_error(plan.construction_error()), report);
        if (const auto expected = row.find("expected")) {
            compare_units(*expected, row, plan, options, report);
        }
        if (const auto flat = row.find("flat")) {
            compare_flat(*flat, plan, report);
        }
        if (row.at("policy").string() == "fully_shard") {
            compare_error(row, "first_forward_error", shown_error(recorded_forward_error(plan)), report);
        }
    }

    // The recorder's tensors have no storage, and the first forward stops at that before it compares dtypes.
    static const Diagnostic* recorded_forward_error(const WrapPlan& plan) {
        const auto found = std::ranges::find_if(plan.diagnostics, [](const Diagnostic& d) {
            return d.severity == Severity::forward_error &&
                   (d.rule == WrapRule::tied_across_groups || d.rule == WrapRule::several_roots);
        });
        return found == plan.diagnostics.end() ? nullptr : &*found;
    }

    void compare_units(const json::Value& expected, const json::Value& row, const WrapPlan& plan,
                       const WrapOptions& options, CaseReport& report) const {
        report.compare("number of units", std::to_string(expected.size()), std::to_string(plan.units.size()));
        // With an error the units are those that were decided on, and nothing was constructed.
        const bool constructed = row.at("source").string() == "constructor" && !row.find("error");
        std::size_t i = 0;
        for (const json::Value index : expected.elements()) {
            if (i == plan.units.size()) {
                break;
            }
            const Unit& unit = plan.units[recorded_unit(row, plan, i)];
            compare_unit(units_.at(index), unit, tree_, noted_arguments(unit, options, constructed),
                         "unit " + std::to_string(i), report);
            ++i;
        }
    }

    // The recorder looks up the state of a list call at the first listed module that has one, and a module
    // that another listed one contains keeps the state of its own earlier call.
    std::size_t recorded_unit(const json::Value& row, const WrapPlan& plan, std::size_t call) const {
        if (row.at("policy").string() != "fully_shard") {
            return call;
        }
        const std::vector<PolicySpec::Call> calls = recorded_policy(row).calls;
        for (const std::string& path : calls[call].modules) {
            for (std::size_t unit = 0; unit <= call; ++unit) {
                if (std::ranges::find(plan.units[unit].modules, tree_.find(path)) !=
                    plan.units[unit].modules.end()) {
                    return unit;
                }
            }
        }
        return call;
    }

    static void compare_flat(const json::Value& flat, const WrapPlan& plan, CaseReport& report) {
        std::size_t i = 0;
        for (const json::Value sizes : flat.elements()) {
            if (i == plan.units.size()) {
                break;
            }
            const Unit& unit = plan.units[i];
            std::string want = "none";
            if (!sizes.is_null()) {
                want.clear();
                for (const json::Value size : sizes.elements()) {
                    want += size.shown() + " ";
                }
            }
            report.compare("unit " + std::to_string(i) + " flat size and piece", want,
                           unit.parameters.empty() ? "none"
                                                   : std::to_string(unit.flat_numel) + " " +
                                                         std::to_string(unit.shard_numel) + " ");
            ++i;
        }
    }

    // Every distinct result of the default size policy. Where modules are shared the digest is over all units
    // in the order of fsdp_modules(), else over the wrapped modules in the order of construction.
    void replay_thresholds(Verification& out) const {
        const json::Value table = file_.at("size_based_intervals");
        if (table.size() == 0) {
            return;
        }
        ++out.tables;
        PolicySpec spec;
        spec.kind = PolicySpec::Kind::recursive;
        spec.members.push_back({.name = "size"});
        WrapOptions options;
        options.world_size = static_cast<int>(file_.at("world_size").integer(1, 1 << 24));
        options.rank = static_cast<int>(file_.at("rank").integer(0));
        const std::vector<ThresholdInterval> intervals = thresholds(tree_, spec, options);
        CaseReport report(name_ + " size_based_intervals");
        report.compare("number of intervals", std::to_string(table.size()), std::to_string(intervals.size()));
        std::size_t i = 0;
        for (const json::Value row : table.elements()) {
            if (i < intervals.size()) {
                compare_interval(row, intervals[i], "interval " + std::to_string(i), report);
            }
            ++i;
        }
        Verification counted;
        report.close(counted);
        out.tables_match += counted.match;
        std::ranges::move(counted.differences, std::back_inserter(out.differences));
    }

    void compare_interval(const json::Value& row, const ThresholdInterval& got, const std::string& where,
                          CaseReport& report) const {
        report.compare(where + " lo", row.at("lo").shown(), std::to_string(got.low));
        report.compare(where + " hi", row.at("hi").shown(), got.high ? std::to_string(*got.high) : "null");
        const WrapPlan& plan = got.plan;
        // An error that only constructing the decided units raises is not part of the table.
        const Diagnostic* error = shared_modules_ ? plan.construction_error() : nullptr;
        compare_error(row, "error", shown_error(error), report);
        if (const auto units = row.find("units")) {
            report.compare(where + " units", units->shown(), std::to_string(plan.units.size() - 1));
            report.compare(where + " digest", std::string(row.at("sha256").string()),
                           sha256_of_lines(unit_names(plan)));
        }
    }

    std::vector<std::string> unit_names(const WrapPlan& plan) const {
        std::vector<std::string> names;
        if (shared_modules_ || !plan.complete) {
            for (const Unit& unit : plan.units) {
                names.push_back(unit.path);
            }
            return names;
        }
        for (const std::int32_t unit : plan.construction_order) {
            names.push_back(plan.units[static_cast<std::size_t>(unit)].path);
        }
        names.pop_back();  // the root
        return names;
    }

    json::Value file_;
    const ModuleTree& tree_;
    std::string name_;
    UnitRows units_;
    bool shared_modules_ = false;  // by the recorder's reckoning: under several parents
};

/// <model>.tree.json or .tree.json.gz beside the units.
std::string tree_beside(const std::string& path) {
    for (const std::string_view ending : endings) {
        if (!path.ends_with(ending)) {
            continue;
        }
        const std::string stem = path.substr(0, path.size() - ending.size());
        for (const char* tree : {".tree.json", ".tree.json.gz"}) {
            if (std::filesystem::exists(stem + tree)) {
                return stem + tree;
            }
        }
    }
    throw Error(ErrorKind::input, path,
                "its module tree (the same name with .tree.json or .tree.json.gz) is missing");
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo wrap_cases;
constinit const RecordingInfo wrap_cases{
    .name = "wrap",
    .help = "wrap boundaries (MODEL.units.json[.gz] with MODEL.tree.json[.gz])",
    .recognises =
        [](const std::string& path, std::string_view /*head*/) {
            return std::ranges::any_of(endings,
                                       [&](std::string_view ending) { return path.ends_with(ending); });
        },
    .replay =
        [](const std::string& path, Verification& out) {
            const ModuleTree tree = flatten(import_model(tree_beside(path)));
            const json::Document document(read_text(path), path);
            const json::Value format = document.root().at("format");
            if (format.string() != "fsdplan.wrap-cases" || document.root().at("version").integer() != 1) {
                format.fail("\"fsdplan.wrap-cases\" of version 1");
            }
            WrapRecording(document.root(), tree, std::filesystem::path(path).filename().string()).replay(out);
        },
};

}  // namespace builtin::recording
}  // namespace fsdplan
