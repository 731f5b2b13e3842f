#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/json.hpp"
#include "fsdplan/diff.hpp"

namespace fsdplan {

/// A result as it is compared with another.
struct ComparedResult {
    std::string command;
    std::string version;  ///< of the program
    std::string model;
    std::string cluster;
    DiffValues settings;
    DiffValues results;
    std::optional<std::pair<std::int64_t, std::int64_t>> step_ns;  ///< ends of the estimate
    std::vector<std::string> notes;
};
/// Throws Error(input) for a document that is no result, or of a later version.
ComparedResult compared_result(const json::Value& root);

/// A scalar; nothing for an array or an object.
DiffValue scalar(const json::Value& value);
/// Every scalar below an object by its dotted key; arrays of scalars as one text, others are left out.
void flatten(const json::Value& object, const std::string& prefix, DiffValues& out);

}  // namespace fsdplan
