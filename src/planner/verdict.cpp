#include "base/quantity.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {

const Diagnostic* refusal(const WrapPlan& plan) {
    for (const Diagnostic& d : plan.diagnostics) {
        if (d.severity != Severity::warning) {
            return &d;
        }
    }
    return nullptr;
}

namespace {

/// The line of a plan's memory that decides whether it fits.
std::string deciding_term(const PlanResult& plan) {
    const MemoryTerm* decides = nullptr;
    const auto weight = [&](const MemoryTerm& term) {
        return plan.fits ? term.bytes.value : term.bytes.high - term.bytes.low;
    };
    for (const MemoryTerm& term : plan.memory) {
        if (term.name == "allocator_slack") {
            continue;  // it follows from the others
        }
        if (decides == nullptr || weight(term) > weight(*decides)) {
            decides = &term;
        }
    }
    return decides == nullptr ? std::string() : decides->name;
}

std::string verdict_text(const PlanResult& plan, const std::string& decided_by, std::int64_t budget) {
    if (const Diagnostic* error = refusal(plan.wrap)) {
        return "PyTorch refuses: " + error->message;
    }
    const std::string of_budget = " of " + show_bytes(budget);
    if (!plan.fits) {
        return "depends on " + shown_term(decided_by) + ": between " + show_bytes(plan.process_bytes.low) +
               " and " + show_bytes(plan.process_bytes.high) + of_budget;
    }
    if (*plan.fits) {
        return "fits: " + show_bytes(plan.left_bytes) + of_budget + " left; the largest part is " +
               shown_term(decided_by);
    }
    return "does not fit: needs at least " + show_bytes(plan.process_bytes.low) + of_budget +
           "; the largest part is " + shown_term(decided_by);
}

}  // namespace

Verdict verdict_of(const PlanResult& plan, std::int64_t budget) {
    const Diagnostic* error = refusal(plan.wrap);
    Verdict out{.fits = error == nullptr ? plan.fits : std::optional<bool>(false),
                .left_bytes = plan.left_bytes,
                .decided_by = error == nullptr ? deciding_term(plan) : std::string(name(error->rule))};
    out.text = verdict_text(plan, out.decided_by, budget);
    return out;
}

}  // namespace fsdplan
