#pragma once

#include <string>
#include <vector>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// A parameter by the first name that it has.
struct NamedParameter {
    std::string name;
    TensorIndex tensor{};
};

/// Module.named_parameters(): in registration order, a tied parameter once.
std::vector<NamedParameter> named_parameters(const ModuleTree& tree);

}  // namespace fsdplan
