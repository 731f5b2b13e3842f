#include <array>

#include "fsdplan/checkpoint.hpp"
#include "schedule/optimizer.hpp"

namespace fsdplan {
namespace {

struct KnownStates {
    std::string_view optimizer;
    std::vector<std::string> tensors;
    std::vector<std::string> group_keys;
};

// Names decide which states a loader asks for; an optimizer that is not listed gets names of ours.
std::vector<KnownStates> known_states() {
    const std::vector<std::string> adam = {
        "lr",       "betas",          "eps",   "weight_decay",          "amsgrad", "foreach", "capturable",
        "maximize", "differentiable", "fused", "decoupled_weight_decay"};
    const std::vector<std::string> sgd = {"lr",           "momentum",       "dampening",
                                          "weight_decay", "nesterov",       "maximize",
                                          "foreach",      "differentiable", "fused"};
    return {{"adam", {"exp_avg", "exp_avg_sq"}, adam},
            {"adamw", {"exp_avg", "exp_avg_sq"}, adam},
            {"sgd", {}, sgd},
            {"sgd_momentum", {"momentum_buffer"}, sgd}};
}

constexpr std::int64_t probe_rows = 1024;

/// What the optimizer keeps for a matrix, told apart by size.
OptimizerStates probed(const OptimizerInfo& info, Optimizer::Implementation implementation) {
    const std::array<std::int64_t, 2> shape{probe_rows, probe_rows};
    const LocalParameter matrix{.numel = probe_rows * probe_rows, .dtype = DType::float32, .shape = shape};
    OptimizerStates states;
    std::int64_t others = 0;
    for (const StateBuffer& buffer : info.keep(matrix, implementation)) {
        if (buffer.bytes == matrix.bytes()) {
            states.tensors.push_back("state_" + std::to_string(states.tensors.size()));
        } else if (buffer.bytes <= 8) {
            states.has_step = true;
        } else {
            others += buffer.bytes;
        }
    }
    if (others > 0 && states.tensors.empty()) {  // quantised or factored
        states.is_estimate = true;
        const std::int64_t bytes_per_element = others / matrix.numel;
        for (std::int64_t i = 0; i < bytes_per_element; ++i) {
            states.tensors.push_back("state_" + std::to_string(i));
        }
        states.dtype = DType::uint8;
    }
    return states;
}

}  // namespace

OptimizerStates optimizer_states(const Optimizer& asked) {
    const OptimizerInfo& info = optimizer(asked.kind);
    OptimizerStates states = probed(info, asked.implementation);
    for (const KnownStates& known : known_states()) {
        if (known.optimizer == asked.kind) {
            states.tensors = known.tensors;
            states.group_keys = known.group_keys;
        }
    }
    return states;
}

}  // namespace fsdplan
