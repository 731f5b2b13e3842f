#pragma once

#include <string>

#include "fsdplan/wrap.hpp"

namespace fsdplan::cli {

/// The units of one plan, repeated ones folded, and what PyTorch would say, for a terminal.
std::string units_text(const ModuleTree& tree, const WrapPlan& plan, bool fsdp2, const WrapOptions& options);

/// The same as JSON: `units[] {module, class, numel, parameters[], …}`, `diagnostics[] {rule, severity, …}`.
std::string units_json(const ModuleTree& tree, const WrapPlan& plan, bool fsdp2, const WrapOptions& options);

}  // namespace fsdplan::cli
