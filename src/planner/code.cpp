#include <algorithm>
#include <charconv>
#include <set>

#include "planner/code_runtimes.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_classes = 4;

std::set<std::string> inner_paths(const WrapPlan& plan) {
    std::set<std::string> paths;
    for (const Unit& unit : plan.units) {
        if (at(unit.module) != 0) {
            paths.insert(unit.path);
        }
    }
    return paths;
}

/// The classes whose instances are just these units, when a ModuleWrapPolicy of them draws the same
/// boundaries.
std::vector<std::string> classes_of(const SweepQuestion& question, const PlanResult& plan) {
    std::vector<std::string> classes;
    for (const Unit& unit : plan.wrap.units) {
        if (unit.modules.size() > 1) {
            return {};
        }
        const std::string& name = question.tree.class_info(unit.module).name;
        if (at(unit.module) != 0 && std::ranges::find(classes, name) == classes.end()) {
            classes.push_back(name);
        }
    }
    if (classes.empty() || classes.size() > most_classes) {
        return {};
    }
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = classes;
    const WrapPlan same = wrap(question.tree, spec, question.wrap);
    return inner_paths(same) == inner_paths(plan.wrap) ? classes : std::vector<std::string>{};
}

/// What a unit was given, else what the job says for all of them; absent: PyTorch decides.
std::optional<std::int64_t> reshard_of(const Unit& unit, const TrainingJob& job) {
    const std::optional<std::int64_t> never =
        frees_after_forward(job.strategy) ? std::optional<std::int64_t>{} : std::optional<std::int64_t>{0};
    const std::optional<std::int64_t> usual = job.reshard_after_forward ? job.reshard_after_forward : never;
    const std::string* own = find_argument(unit.arguments, "reshard_after_forward");
    if (own == nullptr || *own == "null") {
        return usual;
    }
    if (*own == "true" || *own == "false") {
        return *own == "true" ? 1 : 0;
    }
    std::int64_t ranks = 0;
    const auto [rest, error] = std::from_chars(own->data(), own->data() + own->size(), ranks);
    return error == std::errc{} ? std::optional(ranks) : usual;
}

UnitsInCode units_in_code(const SweepQuestion& question, const PlanResult& plan, const TrainingJob& job) {
    UnitsInCode out{.classes = classes_of(question, plan)};
    for (const Unit& unit : plan.wrap.units) {
        if (at(unit.module) == 0) {
            out.root_reshard = reshard_of(unit, job);
            continue;
        }
        UnitCall call{.modules = {unit.path}, .own_reshard = reshard_of(unit, job)};
        if (unit.modules.size() > 1) {
            call.modules.clear();
            for (const ModuleIndex m : unit.modules) {
                call.modules.push_back(question.tree.path(m));
            }
        }
        out.inner.insert(out.inner.end(), call.modules.begin(), call.modules.end());
        out.calls.push_back(std::move(call));
    }
    if (question.sweep_thresholds) {
        out.threshold = readable_number(plan.threshold_low, plan.threshold_high);
    }
    return out;
}

}  // namespace

PlanCode code_of(const SweepQuestion& question, const PlanResult& plan, const TrainingJob& job) {
    const RuntimeInfo& info = runtime(job.runtime);
    if (!info.has_units || !plan.wrap.complete) {
        return {};
    }
    const UnitsInCode units = units_in_code(question, plan, job);
    PlanCode code;
    code.fsdp1 = fsdp1_code(question.tree, job, units);
    code.fsdp2 = job.strategy == Strategy::no_shard ? "" : fsdp2_code(question.tree, job, units);
    return code;
}

}  // namespace fsdplan
