#include <array>

#include "schedule/gradient_norm.hpp"
#include "schedule/optimizer_step.hpp"
#include "schedule/whole_model.hpp"

// One GPU and no wrapper: the parameters' own .grad and nothing to send.
namespace fsdplan {
namespace {

class Single final : public WholeModel {
public:
    Single(const LoweringInput& input, Schedule& out) : WholeModel(input, one_unit(input.tree), out) {}

    void begin() override {
        for (Row& r : parameter_rows) {
            r.stored = buffer(r.bytes(), Category::shard);
            emit.allocate(r.stored);
        }
        WholeModel::begin();
    }

    void end_of_backward() override {
        for (const Row& r : parameter_rows) {
            if (emit.is_live(r.gradient)) {
                emit.relabel(r.gradient, Category::gradient_shard);
            }
        }
    }

    void optimizer_step() override { step_over_rows(); }

protected:
    void gradient_ready(std::int32_t /*row*/) override {}
};

Schedule lower_single(const LoweringInput& input) {
    Schedule out;
    out.stream_names = {"compute", "", "", "", "", "copy"};
    Single(input, out).run();
    return out;
}

constexpr std::array strategies{Strategy::no_shard};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo single;
constinit const RuntimeInfo single{
    .name = "single",
    .help = "one GPU, the model without a wrapper",
    .wraps_by_policy = false,
    .has_units = false,
    .strategies = strategies,
    .lower = lower_single,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
