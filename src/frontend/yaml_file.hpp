#pragma once

#include <map>
#include <string>

#include "fsdplan/frontend.hpp"

namespace fsdplan::frontend {

/// A YAML file of scalars, lists of scalars and sections of both, as PyYAML's safe_load reads it; what stands
/// outside of sections is in section "". Deeper nesting is left out. Throws Error(input) with the line.
std::map<std::string, PythonArguments, std::less<>> read_yaml(const std::string& file);

}  // namespace fsdplan::frontend
