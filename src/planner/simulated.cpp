#include "planner/simulated.hpp"

#include <algorithm>

#include "planner/training_schedule.hpp"

namespace fsdplan {
namespace {

// The first iteration differs (states are created, orders are not known yet); the second is like all others.
constexpr int iterations = 2;

SimulationOptions options_for(const Evaluation& about, const Schedule& schedule, const TrainingJob& job) {
    SimulationOptions options;
    options.pricing = pricing_of(job);
    options.memory = usual_memory(about.cluster, schedule);
    return options;
}

}  // namespace

Pricing pricing_of(const TrainingJob& job) {
    return {.mesh = job.mesh, .compute_dtype = job.param_dtype.value_or(DType::float32)};
}

SimulatedPlan simulate_plan(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job) {
    SimulatedPlan out{.schedule = schedule_with_work(about, plan, job, {.iterations = iterations}),
                      .run = {}};
    SimulationOptions options = options_for(about, out.schedule, job);
    options.memory->device = CachingAllocator::most_memory;  // so that nothing is ever refused or given back
    out.run = simulate(out.schedule, about.cluster, options);
    return out;
}

StepResult simulate_step(const SweepQuestion& question, const StepOptions& options) {
    const TrainingJob& job = question.jobs.front();
    check(job, question.cluster.gpus);
    const ModelFacts facts = facts_of(question.model, question.tree);
    const Evaluation about = evaluation_of(question, facts, job, question.cluster);
    StepResult out;
    out.wrap = units_of(question, job);
    out.plan = evaluate(about, out.wrap, job);
    out.plan.label = runtime(job.runtime).has_units ? label_of(question.tree, out.wrap) : "whole model";
    out.schedule = schedule_with_work(about, out.wrap, job, {.iterations = iterations});
    SimulationOptions simulation = options_for(about, out.schedule, job);
    simulation.memory->allocator = options.allocator;
    if (options.contention) {
        simulation.contention = usual_contention(question.cluster.gpu);
    }
    out.run = simulate(out.schedule, question.cluster, simulation, &out.log);
    out.run.notes.insert(out.run.notes.end(), about.operators.notes.begin(), about.operators.notes.end());
    return out;
}

}  // namespace fsdplan
