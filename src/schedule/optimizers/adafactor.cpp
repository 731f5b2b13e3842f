#include <algorithm>
#include <array>

#include "operators/reduction.hpp"
#include "schedule/optimizer.hpp"

// Source: torch/optim/_adafactor.py of PyTorch 2.13. Norms that are one number, and the few hundred bytes in
// which blocks of a kernel share one out, are left out.
namespace fsdplan {
namespace {

using Implementation = Optimizer::Implementation;
using Temporary = OptimizerStep::Temporary;

constexpr std::int64_t passes = 17;
constexpr std::int32_t launches = 18;  // for one parameter
constexpr std::int32_t foreach_launches = 12;

/// What the variance of a parameter with more than one dimension is made of.
struct Factors {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t row_bytes = 0;     // one number a row
    std::int64_t column_bytes = 0;  // one a column
};

bool is_factored(const LocalParameter& p) {
    return p.dimensions() > 1;
}

Factors factors_of(const LocalParameter& p) {
    Factors out;
    out.columns = p.shape.back();
    out.rows = p.shape[p.shape.size() - 2];
    out.row_bytes = bytes_of(p.numel / out.columns, p.dtype).count;
    out.column_bytes = bytes_of(p.numel / out.rows, p.dtype).count;
    return out;
}

/// torch.norm(grad, dim=-2, keepdim=True)
Temporary column_norms(OptimizerStep& step, const LocalParameter& p) {
    const Factors f = factors_of(p);
    Temporary out = step.allocate(f.column_bytes);
    if (p.dimensions() == 2) {
        const Temporary scratch = step.allocate(sum_scratch_bytes(f.rows, f.columns, step.multiprocessors()));
    }
    return out;
}

/// The host reads the norms of parameter and update.
void read_norms(OptimizerStep& step) {
    step.synchronise();
    step.synchronise();
}

void one_by_one(OptimizerStep& step) {
    Temporary row_mean;
    Temporary column_mean;
    Temporary squared;
    Temporary variance;
    for (const LocalParameter& p : step.parameters()) {
        step.run(passes * p.bytes(), launches);
        read_norms(step);
        if (is_factored(p)) {
            row_mean = step.allocate(factors_of(p).row_bytes);
            column_mean = column_norms(step, p);
        } else {
            squared = step.allocate(p.bytes());
        }
        variance = step.allocate(p.bytes());
    }
}

/// Parameters with several dimensions, or those without.
void foreach (OptimizerStep& step, bool factored, OptimizerStep::TemporaryList & variances) {
    std::vector<const LocalParameter*> group;
    for (const LocalParameter& p : step.parameters()) {
        if (is_factored(p) == factored) {
            group.push_back(&p);
        }
    }
    const auto for_each = [&](auto&& allocate) {
        OptimizerStep::TemporaryList out;
        for (const LocalParameter* p : group) {
            out.add(allocate(*p));
        }
        return out;
    };
    const auto like = [&](const LocalParameter& p) { return step.allocate(p.bytes()); };
    if (factored) {
        for_each([&](const LocalParameter& p) { return step.allocate(factors_of(p).row_bytes); });
        for_each([&](const LocalParameter& p) { return column_norms(step, p); });
    } else {
        for_each(like);  // squares
    }
    variances = for_each(like);
    for (const LocalParameter* p : group) {
        step.run(passes * p->bytes(), 0);
        read_norms(step);
    }
    step.run(0, foreach_launches);
}

void by_foreach(OptimizerStep& step) {
    OptimizerStep::TemporaryList variances;
    const bool factored_first = is_factored(step.parameters().front());
    for (const bool factored : {factored_first, !factored_first}) {
        if (std::ranges::any_of(step.parameters(),
                                [&](const LocalParameter& p) { return is_factored(p) == factored; })) {
            foreach (step, factored, variances)
                ;
        }
    }
}

std::vector<StateBuffer> keep(const LocalParameter& parameter, Implementation /*implementation*/) {
    const StateBuffer count{.bytes = 4, .on_host = true};
    if (!is_factored(parameter)) {
        return {count, {parameter.bytes()}};
    }
    const Factors f = factors_of(parameter);
    return {count, {f.row_bytes}, {f.column_bytes}};
}

std::string_view refused(ParameterForm form, Implementation implementation) {
    if (form != ParameterForm::rows) {
        return "";
    }
    return implementation == Implementation::foreach
               ? "RuntimeError: aten.mul.Tensor: in-place operations that require placement changes are not "
                 "supported."
               : "RuntimeError: aten.pow_.Scalar: in-place operations that require placement changes are not "
                 "supported.";
}

constexpr std::array implementations{Implementation::for_loop, Implementation::foreach};

}  // namespace

namespace builtin::optimizer {

extern const OptimizerInfo adafactor;
constinit const OptimizerInfo adafactor{
    .name = "adafactor",
    .help = "torch.optim.Adafactor",
    .implementations = implementations,
    .states = "a mean for each row and column of a matrix, a variance of each element otherwise",
    .temporaries = [](Implementation implementation) -> std::string_view {
        return implementation == Implementation::foreach ? "foreach: variances of all parameters at once"
                                                         : "for-loop: variances of two parameters";
    },
    .keep = keep,
    .step =
        [](OptimizerStep& step) { step.is(Implementation::foreach) ? by_foreach(step) : one_by_one(step); },
    .refused = refused,
};

}  // namespace builtin::optimizer
}  // namespace fsdplan
