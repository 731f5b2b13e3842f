#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/json.hpp"
#include "fsdplan/cost.hpp"

namespace fsdplan {

/// A constant by name, and what is taken for it where a GPU's file says nothing.
struct ConstantInfo {
    std::string_view name;
    Constant GpuConstants::*member;
    double value;
    double low;
    double high;
    std::string_view meaning;
};
std::span<const ConstantInfo> gpu_constants();

/// The "constants" of a GPU's file; throws Error(input).
GpuConstants read_constants(const std::optional<json::Value>& object);

}  // namespace fsdplan
