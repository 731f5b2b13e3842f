#include <algorithm>
#include <cmath>
#include <map>

#include "base/quantity.hpp"
#include "planner/simulated.hpp"
#include "planner/training_schedule.hpp"
#include "schedule/optimizer.hpp"

namespace fsdplan {
namespace {

using BytesByCategory = std::array<std::int64_t, category_count>;

std::int64_t sum_of(const BytesByCategory& bytes, std::initializer_list<Category> categories) {
    std::int64_t sum = 0;
    for (const Category category : categories) {
        sum += bytes[static_cast<std::size_t>(category)];
    }
    return sum;
}

/// One line of the memory table: which categories of the simulation it shows.
struct TermKind {
    std::string_view name;
    std::vector<Category> categories;
    bool estimated;  ///< its size comes from an estimate of the user's computation
};

const std::vector<TermKind>& term_kinds() {
    using enum Category;
    static const std::vector<TermKind> kinds{
        {"parameter_shards", {shard}, false},
        {"gradient_shards", {gradient_shard}, false},
        {"optimizer_state", {optimizer}, false},
        {"unsharded_parameters", {unsharded, post_forward_shard}, false},
        {"unsharded_gradients", {gradient}, false},
        {"communication_buffers",
         {gather_buffer, gather_input, low_precision_shard, reduce_input, reduce_output},
         false},
        {"replicated_parameters", {replicated}, false},
        {"buffers", {module_buffer}, false},
        {"activations", {activation}, true},
        {"logits", {logits}, false},
        {"loss", {temporary}, true},
        {"optimizer_transients", {optimizer_temporary}, false},
        {"workspaces", {workspace}, true},
    };
    return kinds;
}

/// What a schedule holds on the device by category, to the byte: the allocator's rounding is slack.
struct Held {
    BytesByCategory at_peak{};
    std::vector<std::int64_t> largest;  ///< the most that each term reaches at any moment
};

Held held_by(const Schedule& schedule, std::int32_t peak_op) {
    const std::vector<TermKind>& kinds = term_kinds();
    std::array<std::size_t, category_count> term_of{};
    term_of.fill(kinds.size());
    for (std::size_t k = 0; k < kinds.size(); ++k) {
        for (const Category category : kinds[k].categories) {
            term_of[static_cast<std::size_t>(category)] = k;
        }
    }
    Held out{.largest = std::vector<std::int64_t>(kinds.size() + 1, 0)};
    BytesByCategory now{};
    std::vector<std::int64_t> terms(kinds.size() + 1, 0);
    std::vector<Category> category(schedule.buffers.size());
    const auto count = [&](std::size_t buffer, std::int64_t bytes) {
        const auto c = static_cast<std::size_t>(category[buffer]);
        now[c] += bytes;
        terms[term_of[c]] += bytes;
        out.largest[term_of[c]] = std::max(out.largest[term_of[c]], terms[term_of[c]]);
    };
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        const auto target = static_cast<std::size_t>(op.target);
        if (op.kind == OpKind::allocate && !schedule.buffers[target].on_host) {
            category[target] = schedule.buffers[target].category;
            count(target, op.bytes);
        } else if (op.kind == OpKind::free && !schedule.buffers[target].on_host) {
            count(target, -op.bytes);
        } else if (op.kind == OpKind::relabel && !schedule.buffers[target].on_host) {
            count(target, -schedule.buffers[target].bytes);
            category[target] = static_cast<Category>(op.detail);
            count(target, schedule.buffers[target].bytes);
        }
        if (static_cast<std::int32_t>(i) == peak_op) {
            out.at_peak = now;
        }
    }
    out.largest.resize(kinds.size());
    return out;
}

/// Where in the step an operation stands.
struct Place {
    Phase phase = Phase::forward;
    std::int32_t unit = -1;
};

Place place_of(const Schedule& schedule, std::int32_t op) {
    const Op& at_peak = schedule.ops[static_cast<std::size_t>(op)];
    Place out{.unit = at_peak.unit};
    switch (at_peak.pass) {
        case Pass::forward:
            out.phase = Phase::forward;
            break;
        case Pass::backward:
        case Pass::recompute:
            out.phase = Phase::backward;
            break;
        case Pass::clip:
        case Pass::optimizer:
            out.phase = Phase::step;
            return {.phase = Phase::step};
    }
    if (at_peak.kind == OpKind::allocate) {
        switch (schedule.buffers[static_cast<std::size_t>(at_peak.target)].category) {
            case Category::logits:
            case Category::temporary:
                return {.phase = Phase::loss};
            case Category::reduce_input:
            case Category::reduce_output:
            case Category::gradient_shard:
                out.phase = Phase::reduce;
                break;
            default:
                break;
        }
    }
    // A computation belongs to the unit whose hook ran last.
    for (std::int32_t i = op; out.unit < 0 && i >= 0; --i) {
        out.unit = schedule.ops[static_cast<std::size_t>(i)].unit;
    }
    return out;
}

class PlanMemory {
public:
    PlanMemory(const Evaluation& about, const SimulatedPlan& simulated, const TrainingJob& job)
        : about_(about),
          schedule_(simulated.schedule),
          run_(simulated.run),
          memory_(*simulated.run.memory),
          job_(job),
          held_(held_by(simulated.schedule, simulated.run.memory->peak.op)),
          optimizer_(optimizer(job.optimizer.kind)),
          process_(estimate_process(about.cluster, job)) {}

    void fill(PlanResult& out) const {
        const Place place = place_of(schedule_, memory_.peak.op);
        out.peak_phase = place.phase;
        out.peak_unit = place.unit >= 0 ? schedule_.units[static_cast<std::size_t>(place.unit)] : "";
        out.allocated_bytes = memory_.peak.allocated_bytes;
        Estimate allocated;
        for (std::size_t k = 0; k < term_kinds().size(); ++k) {
            out.memory.push_back(term(term_kinds()[k], held_.largest[k]));
            allocated = allocated + out.memory.back().bytes;
        }
        const Estimate slack = slack_of(allocated);
        const auto outside = [&](std::string name, const Estimate& bytes, std::string note) {
            out.memory.push_back({std::move(name), bytes, bytes.value, false, std::move(note)});
        };
        outside(
            "allocator_slack", slack,
            "what PyTorch's allocator keeps beside it, replayed; published runs reserve 1.05 to 1.37 times "
            "what is active");
        outside("cuda_context", process_.context, "outside the allocator; context and loaded kernels");
        outside("nccl_buffers", process_.nccl, process_.nccl_note);
        out.reserved_bytes = allocated.value + slack.value;
        out.process_bytes = allocated + slack + process_.context + process_.nccl;
    }

private:
    MemoryTerm term(const TermKind& kind, std::int64_t largest) const {
        std::int64_t bytes = 0;
        for (const Category category : kind.categories) {
            bytes += held_.at_peak[static_cast<std::size_t>(category)];
        }
        MemoryTerm out{.name = std::string(kind.name),
                       .bytes = exactly(bytes),
                       .largest_bytes = std::max(bytes, largest),
                       .exact = !kind.estimated,
                       .note = note_of(kind.name)};
        const auto widen = [&](const Estimate& whole) {
            if (whole.value > 0) {
                const auto share = static_cast<double>(bytes) / static_cast<double>(whole.value);
                out.bytes.low = std::min(bytes, rounded(share * static_cast<double>(whole.low)));
                out.bytes.high = std::max(bytes, rounded(share * static_cast<double>(whole.high)));
            }
        };
        if (kind.name == "activations") {
            widen(is_described() ? described(bytes) : about_.activations.saved.all());
        } else if (kind.name == "loss") {
            widen(is_described() ? described(bytes) : about_.loss.loss);
        } else if (kind.name == "logits") {
            widen(is_described() ? exactly(bytes) : about_.loss.logits);
            out.exact = out.bytes.low == out.bytes.high;
        }
        return out;
    }

    bool is_described() const { return !about_.operators.calls.empty(); }
    /// Operator by operator: within this of nearly every recording (docs/accuracy.md).
    static Estimate described(std::int64_t bytes) {
        constexpr double deviation = 0.005;
        const auto value = static_cast<double>(bytes);
        return {bytes, rounded((1.0 - deviation) * value), rounded((1.0 + deviation) * value)};
    }
    static std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::llround(value)); }

    std::string note_of(std::string_view term) const {
        const std::string host = job_.offload ? "in host memory: " : "";
        if (term == "parameter_shards") {
            return job_.offload ? host + show_bytes(on_host(Category::shard)) : "as stored, padding included";
        }
        if (term == "gradient_shards") {
            return job_.offload ? host + show_bytes(on_host(Category::gradient_shard))
                                : "complete at the optimizer step";
        }
        if (term == "optimizer_state") {
            return job_.offload ? host + show_bytes(on_host(Category::optimizer))
                                : std::string(optimizer_.states);
        }
        if (term == "unsharded_parameters") {
            return "gathered: own, around, prefetched";
        }
        if (term == "unsharded_gradients") {
            return "before they are reduced";
        }
        if (term == "communication_buffers") {
            return "of gathers and reductions";
        }
        if (term == "replicated_parameters") {
            return "ignored: whole on every rank, with gradients and states of trainable ones";
        }
        if (term == "buffers") {
            return "of the model, whole on every rank";
        }
        if (term == "activations") {
            if (is_described()) {
                return "what each operator keeps, as PyTorch 2.13 runs it";
            }
            return (about_.model.recorded_batch ? "the operators are those of another batch, dtype or model: "
                                                : "") +
                   about_.activations.note;
        }
        if (term == "logits") {
            return about_.loss.logits_numel == 0 ? about_.loss.note
                                                 : show_integer(about_.loss.logits_numel) + " elements";
        }
        if (term == "loss") {
            return is_described() ? "what " + name(job_.loss) + " allocates beside the logits"
                                  : about_.loss.note;
        }
        return term == "workspaces" ? "cuBLAS: for the program's thread and autograd's"
                                    : std::string(optimizer_.temporaries(job_.optimizer.implementation));
    }

    /// Buffers of a category that lie in host memory, all of them.
    std::int64_t on_host(Category category) const {
        std::int64_t bytes = 0;
        for (const Buffer& buffer : schedule_.buffers) {
            bytes += buffer.on_host && buffer.category == category ? buffer.bytes : 0;
        }
        return bytes;
    }

    // By the replayed allocator; upwards at least what published runs have shown to lie above it. Where the
    // operators are not described, computations have more temporaries than are simulated, and the width is
    // that of published ratios of reserved to active.
    Estimate slack_of(const Estimate& allocated) const {
        const Estimate& reserved = *run_.reserved_bytes;
        const std::int64_t peak = memory_.peak.allocated_bytes;
        const std::int64_t steady =
            sum_of(memory_.peak.by_category,
                   {Category::shard, Category::optimizer, Category::module_buffer, Category::replicated});
        const Estimate published = estimate_slack(allocated, steady, 0);
        const std::int64_t value = std::max<std::int64_t>(0, reserved.value - peak);
        constexpr double worst_published = 0.12;  // of eager and compiled runs: docs/accuracy.md
        const std::int64_t high = is_described()
                                      ? value + rounded(worst_published * static_cast<double>(reserved.value))
                                      : published.high;
        return {
            .value = value,
            .low = std::max<std::int64_t>(0, std::min(value, std::min(reserved.low - peak, published.low))),
            .high = std::max({value, reserved.high - peak, high})};
    }

    const Evaluation& about_;
    const Schedule& schedule_;
    const Run& run_;
    const MemoryProfile& memory_;
    const TrainingJob& job_;
    Held held_;
    const OptimizerInfo& optimizer_;
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

std::string_view name(Phase phase) {
    switch (phase) {
        case Phase::forward:
            return "forward";
        case Phase::loss:
            return "loss";
        case Phase::backward:
            return "backward";
        case Phase::reduce:
            return "gradient reduction";
        case Phase::step:
            return "optimizer step";
    }
    return "";
}

bool PlanResult::runs() const {
    return refusal(wrap) == nullptr;
}

namespace {

/// Everything but the operators.
Evaluation estimates_of(const ModelGraph& model, const ModuleTree& tree, const ModelFacts& facts,
                        const TrainingJob& job, const Cluster& cluster) {
    Evaluation out{.model = model,
                   .tree = tree,
                   .facts = facts,
                   .cluster = cluster,
                   .activations = estimate_activations(tree, facts, job),
                   .loss = estimate_loss(facts, job),
                   .work = {},
                   .operators = {}};
    out.work = work_of(tree, facts, out.activations, out.loss, job, cluster.gpu);
    return out;
}

}  // namespace

Evaluation evaluation_of(const SweepQuestion& question, const ModelFacts& facts, const TrainingJob& job,
                         const Cluster& cluster) {
    Evaluation out = estimates_of(question.model, question.tree, facts, job, cluster);
    out.operators = operators_for(question.model, question.tree, job, cluster.gpu);
    return out;
}

Evaluation evaluation_like(const Evaluation& known, const TrainingJob& job) {
    Evaluation out = estimates_of(known.model, known.tree, known.facts, job, known.cluster);
    out.operators = known.operators;
    return out;
}

PlanResult evaluate(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job) {
    PlanResult out;
    out.wrap = plan;
    count_units(out, about.tree);
    const SimulatedPlan simulated = simulate_plan(about, plan, job);
    PlanMemory(about, simulated, job).fill(out);
    out.collectives = traffic_of(simulated.schedule);
    out.sent_bytes = sent_bytes(out.collectives);
    out.step_ns = simulated.run.step_ns;
    out.exposed_ns = simulated.run.exposed_ns;
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
