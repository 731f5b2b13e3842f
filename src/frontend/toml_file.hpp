#pragma once

#include <string>

namespace fsdplan::frontend {

/// TOML as the JSON that says the same, so that json::Document reads it: dates become strings, and so do
/// infinities and what is no number. Throws Error(input) with the line; `file` names the text in it.
std::string toml_as_json(const std::string& text, const std::string& file);

}  // namespace fsdplan::frontend
