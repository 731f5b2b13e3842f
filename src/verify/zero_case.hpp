#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "schedule/zero_partitions.hpp"
#include "verify/parameter_table.hpp"

// A recorded run of DeepSpeed (`fsdplan.zero-golden`, docs/formats.md) in our own terms.
namespace fsdplan {

struct ZeroCase {
    /// Why it cannot be replayed; the other members are then not to be used.
    std::string out_of_reach;
    ParameterTable table;
    std::vector<zero::Parameter> parameters;
    std::vector<std::int32_t> ready;  ///< in the order in which their gradients become ready
    zero::Options options;
};

/// `recording` is the file's root. Throws Error(input) for what a recording cannot say.
ZeroCase zero_case(const json::Value& recording);

}  // namespace fsdplan
