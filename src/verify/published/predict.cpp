#include "verify/published/predict.hpp"

#include <algorithm>
#include <cmath>

#include "fsdplan/planner.hpp"
#include "model/four_bit.hpp"
#include "model/importer.hpp"
#include "planner/training_schedule.hpp"
#include "verify/wrapping.hpp"

namespace fsdplan {
namespace {

// States are there from the second step on, and so is all that the allocator will ever reserve.
constexpr int iterations = 3;
constexpr std::int64_t id_bytes = 8;  // of a token or a label

ModelGraph model_of(const PublishedRun& run) {
    ModelGraph graph = read_hf_config(run.config, "the published model", {.dtype = run.storage});
    if (run.lora) {
        graph = with_lora(graph, *run.lora);
    }
    return run.four_bit ? with_four_bit_weights(std::move(graph), "lm_head", run.storage) : graph;
}

PolicySpec policy_of(const ModuleTree& tree, const PublishedRun& run) {
    PolicySpec spec;
    if (run.units == PublishedRun::Units::blocks) {
        spec.kind = PolicySpec::Kind::module_classes;
        spec.classes = block_classes(tree);
        return spec;
    }
    spec.kind = PolicySpec::Kind::recursive;
    spec.members.push_back({.name = "transformer", .classes = block_classes(tree)});
    spec.members.push_back({.name = "names", .modules = {"*.lora_A.*", "*.lora_B.*"}});
    return spec;
}

WrapPlan units_for(const SweepQuestion& question, const PublishedRun& run) {
    WrapPlan plan = units_of(question, question.jobs.front());
    if (run.last_block_stays && run.job.runtime == "fsdp2") {
        reshard_all_but_last(question.tree, plan);
    }
    return plan;
}

/// Tokens a second of one GPU, from the time of a step.
Estimate rate_of(std::int64_t tokens, const Estimate& step_ns) {
    const auto rate = [&](std::int64_t ns) {
        return static_cast<std::int64_t>(std::llround(1e9 * static_cast<double>(tokens) /
                                                      static_cast<double>(std::max<std::int64_t>(1, ns))));
    };
    return {.value = rate(step_ns.value), .low = rate(step_ns.high), .high = rate(step_ns.low)};
}

/// How far nine of ten published figures lie from the simulation, as shares of it (docs/accuracy.md): other
/// versions of PyTorch and other drivers hold a little more or less.
struct Margin {
    double below;
    double above;
};
constexpr Margin held{0.015, 0.015};    // by the program
constexpr Margin reserved{0.03, 0.08};  // beside what the replay itself leaves open
constexpr Margin compiled{0.15, 0.08};  // of the eager program: fused kernels hold and keep less

Estimate widened(const Estimate& bytes, const Margin& margin) {
    const auto scaled = [](std::int64_t of, double by) {
        return static_cast<std::int64_t>(std::llround(static_cast<double>(of) * by));
    };
    return {.value = bytes.value,
            .low = scaled(bytes.low, 1.0 - margin.below),
            .high = scaled(bytes.high, 1.0 + margin.above)};
}

Prediction prediction_of(const Run& run, const PreparedRun& prepared, const PublishedRun& published) {
    const MemoryProfile& memory = *run.memory;
    Prediction out;
    const Margin& of_program = published.compiled ? compiled : held;
    const Estimate allocated = exactly(memory.peak.allocated_bytes);
    const Estimate active = exactly(memory.active_peak_bytes.value_or(allocated.value));
    out.peak_allocated_bytes = widened(allocated, of_program);
    out.peak_active_bytes = widened(active, of_program);
    out.peak_reserved_bytes =
        widened(run.reserved_bytes.value_or(active), published.compiled ? compiled : reserved);
    out.peak_live_bytes = program_memory(prepared.schedule).peak.allocated_bytes;
    out.step_ns = run.step_ns;
    if (run.stragglers) {  // what is measured waits for the slowest rank
        const std::int64_t wait = run.stragglers->expected_ns - run.step_ns.value;
        out.step_ns = out.step_ns + exactly(wait);
    }
    out.tokens_per_s = rate_of(prepared.tokens, out.step_ns);
    return out;
}

}  // namespace

PreparedRun prepare(const PublishedRun& run) {
    const ModelGraph model = model_of(run);
    const ModuleTree tree = flatten(model);
    if (run.parameters && *run.parameters != tree.numel[0]) {
        return {.refused = "the published model has " + std::to_string(*run.parameters) +
                           " parameters, one of these sizes " + std::to_string(tree.numel[0])};
    }
    const Cluster cluster = find_cluster(run.cluster);
    check(run.job, cluster.gpus);
    const SweepQuestion question{
        .model = model, .tree = tree, .policy = policy_of(tree, run), .jobs = {run.job}, .cluster = cluster};
    const WrapPlan plan = units_for(question, run);
    if (const Diagnostic* error = plan.construction_error()) {
        return {.refused = "these units cannot be: " + error->message};
    }
    const std::int64_t ids = checked_mul(run.job.tokens(), id_bytes, "the published batch");
    const std::array<std::int64_t, 2> inputs{ids, ids};
    PreparedRun out{.refused = {},
                    .schedule = training_schedule(model, tree, plan, run.job, cluster,
                                                  {.iterations = iterations, .input_bytes = inputs}),
                    .cluster = cluster,
                    .options = {},
                    .tokens = run.job.tokens() * run.job.accumulate};
    out.options.pricing.mesh = run.job.mesh;
    out.options.pricing.compute_dtype = run.job.param_dtype.value_or(run.storage);
    out.options.pricing.flash_attention = run.flash_attention;
    out.options.memory = usual_memory(cluster, out.schedule);
    return out;
}

Prediction predict(const PublishedRun& run) {
    PreparedRun prepared = prepare(run);
    if (!prepared.refused.empty()) {
        return {.refused = prepared.refused};
    }
    Run played = simulate(prepared.schedule, prepared.cluster, prepared.options);
    const bool fits = !played.memory->out_of_memory;
    if (!fits) {
        prepared.options.memory->device = CachingAllocator::most_memory;
        played = simulate(prepared.schedule, prepared.cluster, prepared.options);
    }
    Prediction out = prediction_of(played, prepared, run);
    out.fits = fits;
    return out;
}

}  // namespace fsdplan
