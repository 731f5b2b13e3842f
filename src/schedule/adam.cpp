#include "schedule/adam.hpp"

namespace fsdplan::adam {
namespace {

using Implementation = Optimizer::Implementation;
using Temporary = OptimizerStep::Temporary;

// Passes over a parameter's bytes: a fused step reads parameter, gradient and two moments and writes three of
// them; the others make a pass for each operation.
constexpr std::int64_t fused_passes = 7;
constexpr std::int64_t passes = 16;
constexpr std::int32_t foreach_launches = 12;
constexpr std::int32_t launches = 8;  // for one parameter

// denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)
void one_by_one(OptimizerStep& step) {
    Temporary denominator;
    for (const LocalParameter& p : step.parameters()) {
        const Temporary root = step.allocate(p.bytes());
        step.run(passes * p.bytes(), launches);
        denominator = step.allocate(p.bytes());
    }
}

}  // namespace

std::string_view temporaries(Implementation implementation) {
    switch (implementation) {
        case Implementation::foreach:
            return "foreach: square roots of the second moments, all at once";
        case Implementation::fused:
            return "fused: in place";
        case Implementation::for_loop:
            return "for-loop: two temporaries of the largest parameter";
    }
    return "";
}

std::vector<StateBuffer> keep(const LocalParameter& parameter, Implementation implementation) {
    constexpr std::int64_t count_bytes = 4;
    return {{parameter.bytes()},
            {parameter.bytes()},
            {.bytes = count_bytes, .on_host = implementation != Implementation::fused}};
}

// exp_avg_sq_sqrt = torch._foreach_sqrt(exp_avg_sqs)
void step_foreach(OptimizerStep& step, std::span<const LocalParameter* const> parameters) {
    OptimizerStep::TemporaryList roots;
    std::int64_t bytes = 0;
    for (const LocalParameter* p : parameters) {
        roots.add(step.allocate(p->bytes()));
        bytes += p->bytes();
    }
    if (bytes > 0) {
        step.run(passes * bytes, foreach_launches);
    }
}

void step(OptimizerStep& step) {
    switch (step.implementation()) {
        case Implementation::foreach: {
            std::vector<const LocalParameter*> all;
            for (const LocalParameter& p : step.parameters()) {
                all.push_back(&p);
            }
            return step_foreach(step, all);
        }
        case Implementation::fused:
            return step.run(fused_passes * step.bytes(), 1);
        case Implementation::for_loop:
            return one_by_one(step);
    }
}

}  // namespace fsdplan::adam
