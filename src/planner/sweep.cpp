#include <algorithm>
#include <iterator>

#include "base/quantity.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_plans = 10'000;

WrapOptions options_for(const SweepQuestion& question, const TrainingJob& job) {
    WrapOptions options = wrap_options(job);
    options.rank = question.wrap.rank;
    options.ignored_modules = question.wrap.ignored_modules;
    options.ignored_parameters = question.wrap.ignored_parameters;
    options.keep_full_precision = question.wrap.keep_full_precision;
    if (!runtime(job.runtime).wraps_by_policy) {
        // A policy draws its boundaries on the whole model before fully_shard sees it.
        options.use_orig_params = false;
        options.mixed_precision = false;
        options.param_dtype.reset();
    }
    return options;
}

WrapPlan whole_model(const ModuleTree& tree) {
    WrapPlan plan = wrap(tree, {}, {});
    plan.diagnostics.clear();  // they are about flat parameters, which DDP does not have
    return plan;
}

/// The plan with what PyTorch refuses about training it this way.
WrapPlan judged(const ModuleTree& tree, WrapPlan plan, const TrainingJob& job) {
    std::ranges::move(refusals(tree, plan, job), std::back_inserter(plan.diagnostics));
    return plan;
}

struct Boundaries {
    std::int64_t low = 0;
    std::optional<std::int64_t> high;
    WrapPlan plan;
};

/// The only size member of a policy that has a number, to say which other numbers would do the same.
const PolicySpec::Member* single_size(const PolicySpec& policy) {
    const bool single = policy.kind == PolicySpec::Kind::recursive && policy.members.size() == 1 &&
                        policy.members.front().name == "size";
    return single ? &policy.members.front() : nullptr;
}

std::vector<Boundaries> boundaries_for(const SweepQuestion& question, const TrainingJob& job) {
    const RuntimeInfo& info = runtime(job.runtime);
    std::vector<Boundaries> out;
    if (!info.has_units) {
        out.push_back({.low = 0, .high = std::nullopt, .plan = whole_model(question.tree)});
        return out;
    }
    const WrapOptions options = options_for(question, job);
    const auto add = [&](std::int64_t low, std::optional<std::int64_t> high, WrapPlan plan) {
        WrapPlan drawn =
            info.wraps_by_policy ? std::move(plan) : as_fully_shard(question.tree, plan, options);
        out.push_back({low, high, judged(question.tree, std::move(drawn), job)});
    };
    const PolicySpec::Member* size = single_size(question.policy);
    if (!question.sweep_thresholds && size == nullptr) {
        out.push_back({.low = 0, .high = std::nullopt, .plan = units_of(question, job)});
        return out;
    }
    std::vector<ThresholdInterval> intervals = thresholds(question.tree, question.policy, options);
    std::ranges::reverse(intervals);
    const double wanted =
        size != nullptr ? size->min_num_params.value_or(static_cast<double>(default_min_num_params)) : 0.0;
    for (ThresholdInterval& interval : intervals) {
        const bool holds = wanted >= static_cast<double>(interval.low) &&
                           (!interval.high || wanted <= static_cast<double>(*interval.high));
        if (question.sweep_thresholds || holds) {
            add(interval.low, interval.high, std::move(interval.plan));
        }
    }
    if (out.empty()) {  // a fraction between two intervals
        out.push_back({.low = 0, .high = std::nullopt, .plan = units_of(question, job)});
    }
    return out;
}

double tokens_per_ns(const SweepQuestion& question, const PlanResult& plan) {
    const TrainingJob& job = question.jobs[plan.job];
    return static_cast<double>(job.tokens() * job.accumulate) /
           static_cast<double>(std::max<std::int64_t>(1, plan.step_ns.value));
}

/// Of plans that are as fast, as far as the estimate can tell, and need as little, the one with the fewest
/// units, since each costs host time. `by_rate`: speed counts before need.
std::size_t best_of(const SweepQuestion& question, const std::vector<PlanResult>& plans,
                    std::vector<std::size_t> among, bool by_rate) {
    const auto rate = [&](std::size_t i) { return tokens_per_ns(question, plans[i]); };
    const auto needs = [&](std::size_t i) { return plans[i].process_bytes.value; };
    const auto keep_fast = [&] {
        const double fastest = rate(*std::ranges::max_element(among, {}, rate));
        std::erase_if(among, [&](std::size_t i) { return rate(i) < 0.97 * fastest; });
    };
    const auto keep_small = [&] {
        const std::int64_t least = needs(*std::ranges::min_element(among, {}, needs));
        std::erase_if(among,
                      [&](std::size_t i) { return needs(i) > least + question.cluster.budget.count / 50; });
    };
    if (by_rate) {
        keep_fast();
        keep_small();
    } else {
        keep_small();
        keep_fast();
    }
    return *std::ranges::min_element(
        among, {}, [&](std::size_t i) { return std::pair(plans[i].units, plans[i].step_ns.value); });
}

/// The fastest plan that fits with certainty.
std::optional<std::size_t> best_that_fits(const SweepQuestion& question,
                                          const std::vector<PlanResult>& plans) {
    std::vector<std::size_t> fitting;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        if (plans[i].fits == true && plans[i].runs()) {
            fitting.push_back(i);
        }
    }
    return fitting.empty() ? std::nullopt : std::optional(best_of(question, plans, std::move(fitting), true));
}

/// Without a recommended plan: the smallest of those that may fit, else the smallest at all.
std::size_t closest(const SweepQuestion& question, const std::vector<PlanResult>& plans) {
    const auto worth = [](const PlanResult& plan) {
        return std::pair(plan.runs() ? 1 : 0, plan.fits ? 0 : 1);
    };
    std::vector<std::size_t> among;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        if (!among.empty() && worth(plans[i]) > worth(plans[among.front()])) {
            among.clear();
        }
        if (among.empty() || worth(plans[i]) == worth(plans[among.front()])) {
            among.push_back(i);
        }
    }
    return best_of(question, plans, std::move(among), false);
}

void add_collective_assumptions(const SweepQuestion& question, const PlanResult& plan, SweepResult& out) {
    const TrainingJob& job = question.jobs[plan.job];
    std::vector<std::string> said;
    for (const Collective& call : plan.collectives) {
        const Placement group = place(call.group, job.mesh, question.cluster, call.ranks);
        const CollectiveTime time = collective_time(question.cluster, call.kind, call.full_size(), group);
        std::string key = std::string(name(call.kind)) + " over " + std::to_string(call.ranks) + " ranks";
        if (std::ranges::find(said, key) != said.end()) {
            continue;
        }
        out.assumptions.push_back(
            {"time of " + key, std::string(name(time.origin)),
             time.curve.empty() ? "NCCL's formulas and link speeds" : std::string(time.curve),
             show_bytes(call.full_size().count) + " take " + show_duration(time.ns.value)});
        said.push_back(std::move(key));
    }
}

void add_assumptions(const SweepQuestion& question, const ModelFacts& facts, const PlanResult& plan,
                     SweepResult& out) {
    const auto add = [&](std::string name, std::string value, std::string from, std::string note) {
        out.assumptions.push_back({std::move(name), std::move(value), std::move(from), std::move(note)});
    };
    add("attention", "flash", "default",
        "scores are not stored; eager attention keeps sequence x sequence of them");
    add("dropout", "none", "default", "masks of dropout layers are not counted");
    if (facts.shape.has_experts) {
        add("experts a token", std::to_string(facts.experts_per_token),
            facts.experts_per_token_known ? "model" : "default", "balanced routing");
    }
    const Gpu& gpu = question.cluster.gpu;
    add("matrix products",
        std::to_string(static_cast<int>(gpu.constants.products.value * 100.0)) + " % of peak", gpu.name,
        "of large ones; less by their tiles, waves and depth");
    for (std::string& line : assumed_constants(gpu)) {
        add("constant", "usual", "default", std::move(line));
    }
    add_collective_assumptions(question, plan, out);
}

}  // namespace

std::string shown_term(std::string_view name) {
    std::string text(name);
    std::ranges::replace(text, '_', ' ');
    return text;
}

WrapPlan units_of(const SweepQuestion& question, const TrainingJob& job) {
    const RuntimeInfo& info = runtime(job.runtime);
    if (!info.has_units) {
        return whole_model(question.tree);
    }
    const WrapOptions options = options_for(question, job);
    return judged(question.tree,
                  info.wraps_by_policy ? wrap_fsdp1(question.tree, question.policy, options)
                                       : wrap_fsdp2(question.tree, question.policy, options),
                  job);
}

SweepResult sweep(const SweepQuestion& question) {
    const ModelFacts facts = facts_of(question.model, question.tree);
    SweepResult out;
    for (std::size_t j = 0; j < question.jobs.size(); ++j) {
        const TrainingJob& job = question.jobs[j];
        check(job, question.cluster.gpus);
        const Evaluation about = evaluation_of(question, facts, job, question.cluster);
        for (const Boundaries& boundaries : boundaries_for(question, job)) {
            if (out.plans.size() == most_plans) {
                throw Error(ErrorKind::input, "sweep",
                            "more than 10,000 plans; give fewer values for the options that are lists");
            }
            PlanResult plan = evaluate(about, boundaries.plan, job);
            plan.threshold_low = boundaries.low;
            plan.threshold_high = boundaries.high;
            plan.job = j;
            plan.label = runtime(job.runtime).has_units ? label_of(question.tree, plan.wrap) : "whole model";
            plan.strategies = compare_strategies(question, plan.wrap, job);
            plan.code = code_of(question, plan, job);
            out.plans.push_back(std::move(plan));
        }
    }
    out.recommended = best_that_fits(question, out.plans);
    out.shown = out.recommended.value_or(closest(question, out.plans));
    const PlanResult& shown = out.plans[out.shown];
    out.verdict = verdict_of(shown, question.cluster.budget.count);
    if (shown.runs()) {
        out.verdict.next = changes_for(question, facts, shown);
    }
    add_assumptions(question, facts, shown, out);
    return out;
}

}  // namespace fsdplan
