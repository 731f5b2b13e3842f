#pragma once

#include <map>
#include <string>

#include "fsdplan/frontend.hpp"

namespace fsdplan::frontend {

/// YAML of scalars, lists of scalars and sections of both, as PyYAML's safe_load reads it; what stands
/// outside of sections is in section "". Deeper nesting is left out. Throws Error(input) with the line;
/// `file` names the text in it.
std::map<std::string, PythonArguments, std::less<>> read_yaml(const std::string& text,
                                                              const std::string& file);

/// The same as JSON, so that json::Document reads it: sections are objects.
std::string yaml_as_json(const std::string& text, const std::string& file);

}  // namespace fsdplan::frontend
