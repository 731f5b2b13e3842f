#include <algorithm>
#include <map>

#include "base/quantity.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {
namespace {

/// The lines of the table, as one moment has them.
struct Lines {
    std::int64_t shards = 0;
    std::int64_t gradient_shards = 0;
    std::int64_t unsharded = 0;
    std::int64_t gradients = 0;
    std::int64_t buffers = 0;
    Estimate activations;
    Estimate logits;
    Estimate loss;
    Estimate transients;
    Estimate allocated;
};

struct Replicated {  // parameters that no unit manages: ignored ones
    std::int64_t bytes = 0;
    std::int64_t trainable_numel = 0;
    std::int64_t trainable_bytes = 0;
};

Replicated replicated_of(const ModuleTree& tree, const WrapPlan& plan, bool has_units) {
    Replicated out;
    if (!has_units) {
        return out;
    }
    std::vector<char> managed(tree.tensors.size(), 0);
    for (const Unit& unit : plan.units) {
        for (const TensorIndex t : unit.parameters) {
            managed[at(t)] = 1;
        }
    }
    std::vector<char> parameter(tree.tensors.size(), 0);
    for (const TensorIndex t : tree.parameter) {
        parameter[at(t)] = 1;
    }
    for (std::size_t t = 0; t < tree.tensors.size(); ++t) {
        if (parameter[t] == 0 || managed[t] != 0) {
            continue;
        }
        const std::int64_t bytes = bytes_of(tree.tensors[t].numel, tree.tensors[t].dtype).count;
        out.bytes += bytes;
        if (tree.tensors[t].requires_grad) {
            out.trainable_numel += tree.tensors[t].numel;
            out.trainable_bytes += bytes;
        }
    }
    return out;
}

/// Recomputed activations that exist while the backward of rows [begin, end) runs: of one region at a time.
Estimate recomputed_in(const Activations& activations, std::int32_t begin, std::int32_t end) {
    Estimate most;
    for (const Activations::Region& region : activations.recomputed) {
        if (region.begin < end && region.end > begin && region.bytes.value > most.value) {
            most = region.bytes;
        }
    }
    return most;
}

class PlanMemory {
public:
    PlanMemory(const Evaluation& about, const StepLayout& layout, const TrainingJob& job,
               const Replicated& replicated)
        : about_(about),
          layout_(layout),
          job_(job),
          replicated_(replicated),
          optimizer_(estimate_optimizer(layout, job, replicated.trainable_numel, replicated.trainable_bytes)),
          process_(estimate_process(about.cluster, job)) {}

    void fill(PlanResult& out) {
        std::size_t peak = 0;
        std::vector<Lines> lines;
        Estimate most;
        for (const Moment& moment : layout_.moments) {
            lines.push_back(at(moment));
            const Estimate& all = lines.back().allocated;
            if (all.value > lines[peak].allocated.value) {
                peak = lines.size() - 1;
            }
            most = {std::max(most.value, all.value), std::max(most.low, all.low),
                    std::max(most.high, all.high)};
        }
        const Moment& moment = layout_.moments[peak];
        out.peak_phase = moment.phase;
        if (moment.row >= 0) {
            const std::int32_t unit = layout_.units[static_cast<std::size_t>(moment.row)].unit;
            out.peak_unit = out.wrap.units[static_cast<std::size_t>(unit)].path;
        }
        out.allocated_bytes = most.value;
        const Estimate slack = estimate_slack(most, constant(), layout_.run_ahead_bytes);
        add_terms(out, lines, peak, slack);
        out.reserved_bytes = out.allocated_bytes + slack.value;
        out.process_bytes = most + slack + process_.context + process_.nccl;
    }

private:
    std::int64_t on_device(std::int64_t bytes) const { return job_.offload ? 0 : bytes; }

    /// What never moves during a step.
    std::int64_t constant() const {
        return on_device(layout_.shard_bytes + optimizer_.states.value) + replicated_.bytes +
               replicated_gradients() + layout_.reduce_bucket_bytes + about_.facts.buffer_bytes;
    }

    std::int64_t replicated_gradients() const { return replicated_.trainable_bytes; }

    Lines at(const Moment& moment) const {
        Lines lines;
        lines.shards = on_device(layout_.shard_bytes);
        lines.gradient_shards = on_device(moment.gradient_shard_bytes);
        lines.unsharded = moment.unsharded_bytes;
        lines.gradients = moment.gradient_bytes;
        lines.buffers = moment.buffer_bytes + layout_.reduce_bucket_bytes;
        const RowBytes& kept = about_.activations.kept;
        // Moments of the whole step have no unit, and no phase of a unit either.
        const bool in_a_unit = moment.row >= 0;
        const auto row = static_cast<std::size_t>(in_a_unit ? moment.row : 0);
        const std::int32_t begin = in_a_unit ? layout_.units[row].begin : 0;
        const std::int32_t end = in_a_unit ? layout_.units[row].end : 0;
        switch (moment.phase) {
            case Phase::forward:
                lines.activations = kept.before(end);
                break;
            case Phase::loss:
                lines.activations = kept.all();
                lines.logits = about_.loss.logits;
                lines.loss = about_.loss.loss;
                break;
            case Phase::backward:
                lines.activations = kept.before(end) + recomputed_in(about_.activations, begin, end);
                break;
            case Phase::gradient:
            case Phase::reduce:
                lines.activations = kept.before(begin);
                break;
            case Phase::step:
                lines.transients = job_.offload ? Estimate{} : optimizer_.transients;
                break;
        }
        const std::int64_t exact = lines.shards + lines.gradient_shards + lines.unsharded + lines.gradients +
                                   lines.buffers + replicated_.bytes + replicated_gradients() +
                                   about_.facts.buffer_bytes;
        lines.allocated = exactly(exact) + states() + lines.activations + lines.logits + lines.loss +
                          lines.transients + process_.workspace;
        return lines;
    }

    Estimate states() const { return job_.offload ? Estimate{} : optimizer_.states; }

    void add_terms(PlanResult& out, const std::vector<Lines>& lines, std::size_t peak,
                   const Estimate& slack) const {
        const Lines& now = lines[peak];
        const auto exact = [&](std::string name, std::int64_t Lines::*line, std::string note) {
            std::int64_t largest = 0;
            for (const Lines& other : lines) {
                largest = std::max(largest, other.*line);
            }
            out.memory.push_back({std::move(name), exactly(now.*line), largest, true, std::move(note)});
        };
        const auto estimate = [&](std::string name, Estimate Lines::*line, std::string note) {
            std::int64_t largest = 0;
            for (const Lines& other : lines) {
                largest = std::max(largest, (other.*line).value);
            }
            out.memory.push_back({std::move(name), now.*line, largest, false, std::move(note)});
        };
        const auto constant = [&](std::string name, const Estimate& bytes, bool is_exact, std::string note) {
            out.memory.push_back({std::move(name), bytes, bytes.value, is_exact, std::move(note)});
        };
        const std::string host = job_.offload ? "in host memory: " : "";
        exact("parameter_shards", &Lines::shards,
              job_.offload ? host + show_bytes(layout_.shard_bytes) : "as stored, padding included");
        exact("gradient_shards", &Lines::gradient_shards,
              job_.offload ? host + show_bytes(layout_.gradient_shard_bytes)
                           : "complete at the optimizer step");
        constant("optimizer_state", states(), job_.optimizer.kind != Optimizer::Kind::adam8bit,
                 job_.offload ? host + show_bytes(optimizer_.states.value) : optimizer_.states_note);
        exact("unsharded_parameters", &Lines::unsharded, "gathered: own, around, prefetched");
        exact("unsharded_gradients", &Lines::gradients, "before they are reduced");
        exact("communication_buffers", &Lines::buffers, "of gathers and reductions");
        constant("replicated_parameters", exactly(replicated_.bytes), true,
                 "ignored: whole on every rank" +
                     std::string(replicated_.trainable_bytes > 0 ? ", states are counted above" : ""));
        constant("replicated_gradients", exactly(replicated_gradients()), true, "of ignored parameters");
        constant("buffers", exactly(about_.facts.buffer_bytes), true, "of the model, whole on every rank");
        estimate("activations", &Lines::activations, about_.activations.note);
        estimate("logits", &Lines::logits,
                 about_.loss.logits_numel == 0 ? about_.loss.note
                                               : show_integer(about_.loss.logits_numel) + " elements");
        out.memory.back().exact = out.memory.back().bytes.low == out.memory.back().bytes.high;
        estimate("loss", &Lines::loss, about_.loss.note);
        estimate("optimizer_transients", &Lines::transients, optimizer_.transients_note);
        constant("workspaces", process_.workspace, false, "cuBLAS, one or two streams");
        constant("allocator_slack", slack, false,
                 "a fifth of what moves; published runs reserve 1.05 to 1.37 times what is active");
        constant("cuda_context", process_.context, false,
                 "outside the allocator; context and loaded kernels");
        constant("nccl_buffers", process_.nccl, false, process_.nccl_note);
    }

    const Evaluation& about_;
    const StepLayout& layout_;
    const TrainingJob& job_;
    const Replicated& replicated_;
    OptimizerBytes optimizer_;
    ProcessEstimate process_;
};

void count_units(PlanResult& out, const ModuleTree& tree) {
    std::map<std::string, std::size_t, std::less<>> position;
    for (std::size_t i = 0; i < out.wrap.units.size(); ++i) {
        const Unit& unit = out.wrap.units[i];
        ++out.units;
        if (at(unit.module) == 0) {
            out.root_numel = unit.numel;
        }
        if (out.largest_unit < 0 || unit.numel > out.largest_unit_numel) {
            out.largest_unit = static_cast<std::int32_t>(i);
            out.largest_unit_numel = unit.numel;
        }
        if (unit.parameters.empty()) {
            continue;
        }
        ++out.units_with_parameters;
        const std::string name(short_name(tree.class_info(unit.module).name));
        const auto [found, added] = position.try_emplace(name, out.units_by_class.size());
        if (added) {
            out.units_by_class.push_back({name, 0});
        }
        ++out.units_by_class[found->second].second;
    }
}

}  // namespace

bool PlanResult::runs() const {
    return std::ranges::none_of(wrap.diagnostics,
                                [](const Diagnostic& d) { return d.severity != Severity::warning; });
}

Evaluation evaluation_of(const SweepQuestion& question, const ModelFacts& facts, const TrainingJob& job,
                         const Cluster& cluster) {
    return {.tree = question.tree,
            .facts = facts,
            .cluster = cluster,
            .activations = estimate_activations(question.tree, facts, job),
            .loss = estimate_loss(facts, job)};
}

PlanResult evaluate(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job) {
    PlanResult out;
    out.wrap = plan;
    count_units(out, about.tree);
    out.layout = lay_out(about.tree, plan, job);
    const Replicated replicated = replicated_of(about.tree, plan, runtime(job.runtime).has_units);
    PlanMemory memory(about, out.layout, job, replicated);
    memory.fill(out);
    const StepTime time =
        estimate_step(about.tree, about.facts, about.activations, out.layout, job, about.cluster);
    out.step_ns = time.step_ns;
    out.exposed_ns = time.exposed_ns;
    const std::int64_t budget = about.cluster.budget.count;
    out.left_bytes = budget - out.process_bytes.value;
    if (out.process_bytes.high <= budget) {
        out.fits = true;
    } else if (out.process_bytes.low > budget) {
        out.fits = false;
    }
    return out;
}

PlanResult evaluate(const SweepQuestion& question, const WrapPlan& plan, const TrainingJob& job) {
    const ModelFacts facts = facts_of(question.model, question.tree);
    return evaluate(evaluation_of(question, facts, job, question.cluster), plan, job);
}

}  // namespace fsdplan
