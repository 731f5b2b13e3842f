#include "schedule/sgd.hpp"

namespace fsdplan::sgd {

std::string_view temporaries(Optimizer::Implementation /*implementation*/) {
    return "in place";
}

std::string_view refused(ParameterForm form, Optimizer::Implementation implementation) {
    return form == ParameterForm::rows && implementation == Optimizer::Implementation::fused
               ? "NotImplementedError: Operator aten._fused_sgd_.default does not have a sharding strategy "
                 "registered."
               : "";
}

void step(OptimizerStep& step, std::int64_t passes, std::int32_t launches) {
    if (!step.is(Optimizer::Implementation::for_loop)) {
        step.run(passes * step.bytes(), launches);
        return;
    }
    for (const LocalParameter& p : step.parameters()) {
        step.run(passes * p.bytes(), launches);
    }
}

}  // namespace fsdplan::sgd
