#pragma once

#include <nlohmann/json.hpp>

#include "fsdplan/verify.hpp"

namespace fsdplan::cli {

/// Each published figure beside its prediction, then the tables.
void print_published(const Verification& result);

/// Adds "figures", "outcomes" and "table_accuracies".
void add_published(const Verification& result, nlohmann::ordered_json& out);

}  // namespace fsdplan::cli
