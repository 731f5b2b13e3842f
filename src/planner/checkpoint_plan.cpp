#include "fsdplan/checkpoint_plan.hpp"

#include <algorithm>
#include <array>

#include "base/quantity.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {
namespace {

CheckpointQuestion question_of(const SweepQuestion& question, const TrainingJob& job, const PlanResult& plan,
                               const CheckpointWish& wish) {
    if (!has_state_dicts(job)) {
        throw Error(ErrorKind::input, "--runtime",
                    "checkpoints of " + job.runtime +
                        " are DeepSpeed's own and not described; expected fsdp1, fsdp2, ddp or single");
    }
    CheckpointQuestion out;
    out.layout = state_layout(question.model, plan.wrap, job);
    out.cluster = question.cluster;
    out.storage = wish.storage;
    out.with_optimizer = wish.with_optimizer;
    return out;
}

class Advice {
public:
    Advice(const PlanResult& plan, CheckpointPlan& out) : plan_(plan), out_(out) {}

    void give() {
        const CheckpointCost* best = recommended_format(out_.costs, out_.resident_bytes, out_.budget_bytes);
        if (best != nullptr) {
            out_.recommended = static_cast<std::size_t>(best - out_.costs.data());
        }
        const bool trains = plan_.runs() && plan_.fits.value_or(false);
        if (!trains) {
            out_.verdict =
                plan_.runs() ? "does not fit while training with certainty" : "PyTorch refuses these units";
            return;
        }
        if (out_.asked) {
            about_asked(out_.costs[*out_.asked]);
        } else {
            about_all();
        }
    }

private:
    bool runs_out(const CheckpointCost& cost) const {
        return !cost.refused && !cost.fits(out_.resident_bytes, out_.budget_bytes);
    }

    std::string choice() const {
        return out_.recommended ? ": choose " + std::string(out_.costs[*out_.recommended].format->type)
                                : std::string("; no way to save fits");
    }

    void about_asked(const CheckpointCost& cost) {
        const std::string type(cost.format->type);
        if (cost.refused) {
            out_.verdict = "fits while training, but PyTorch does not save " + type + " (" +
                           cost.refused->error_class + ": " + cost.refused->reason + ")" + choice();
        } else if (runs_out(cost)) {
            out_.verdict = "fits while training, runs out while saving with " + type + " (" +
                           show_bytes(missing(cost)) + " short)" + choice();
        } else if (cost.exceeds_timeout) {
            out_.verdict = "fits while training and saving, but rank 0 writes " + type + " for " +
                           show_duration(cost.write_ns.value) + ", longer than the others wait" + choice();
        } else {
            out_.verdict = "fits while training and while saving with " + type;
            out_.fits = true;
        }
    }

    void about_all() {
        std::string words;
        for (const CheckpointCost& cost : out_.costs) {
            if (runs_out(cost)) {
                words += (words.empty() ? "" : ", ") + std::string(cost.format->type);
            }
        }
        out_.fits = out_.recommended.has_value();
        out_.verdict = words.empty() ? "fits while training and while saving in any way" + choice()
                                     : "fits while training, runs out while saving with " + words + choice();
    }

    std::int64_t missing(const CheckpointCost& cost) const {
        return out_.resident_bytes + cost.save.device_peak_bytes - out_.budget_bytes;
    }

    const PlanResult& plan_;
    CheckpointPlan& out_;
};

}  // namespace

bool has_state_dicts(const TrainingJob& job) {
    return !job.runtime.starts_with("zero");
}

std::int64_t resident_bytes(const PlanResult& plan) {
    constexpr std::array<std::string_view, 7> between_steps{
        "parameter_shards", "optimizer_state", "replicated_parameters", "buffers",
        "workspaces",       "cuda_context",    "nccl_buffers"};
    std::int64_t total = 0;
    for (const MemoryTerm& term : plan.memory) {
        if (std::ranges::find(between_steps, term.name) != between_steps.end()) {
            total += term.bytes.value;
        }
    }
    return total;
}

CheckpointPlan plan_checkpoint(const SweepQuestion& question, const TrainingJob& job, const PlanResult& plan,
                               const CheckpointWish& wish) {
    const CheckpointQuestion about = question_of(question, job, plan, wish);
    CheckpointPlan out{.resident_bytes = resident_bytes(plan), .budget_bytes = question.cluster.budget.count};
    out.label = runtime(job.runtime).has_units ? label_of(question.tree, plan.wrap) : "whole model";
    out.costs = checkpoint_costs(about);
    if (wish.type) {
        const CheckpointFormat& format = checkpoint_format(*wish.type, about.layout.runtime, "--save-type");
        const auto asked = std::ranges::find(out.costs, &format, &CheckpointCost::format);
        out.asked = static_cast<std::size_t>(asked - out.costs.begin());
    }
    Advice(plan, out).give();
    return out;
}

bool fits_while_saving(const SweepQuestion& question, const TrainingJob& job, const PlanResult& plan,
                       const CheckpointWish& wish) {
    if (!wish.type) {
        return true;
    }
    const CheckpointQuestion about = question_of(question, job, plan, wish);
    const CheckpointFormat& format = checkpoint_format(*wish.type, about.layout.runtime, "--save-type");
    return checkpoint_cost(about, format).fits(resident_bytes(plan), question.cluster.budget.count);
}

std::string_view accelerate_format(std::string_view state_dict_type, std::string_view runtime) {
    const bool fsdp1 = runtime == "fsdp1";
    if (state_dict_type == "FULL_STATE_DICT") {
        return fsdp1 ? "full,offload,rank0" : "full,offload";
    }
    if (state_dict_type == "SHARDED_STATE_DICT") {
        return "dcp,offload";
    }
    return state_dict_type == "LOCAL_STATE_DICT" && fsdp1 ? "local" : "";
}

}  // namespace fsdplan
