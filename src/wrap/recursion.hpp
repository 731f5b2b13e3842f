#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "wrap/wrapped_model.hpp"

namespace fsdplan {

using Policies = std::vector<std::unique_ptr<RecursivePolicy>>;

/// The policies of a spec's members; `min_num_params` replaces that of the ones named "size".
Policies make_policies(const ModuleTree& tree, const PolicySpec& spec,
                       std::optional<std::int64_t> min_num_params);

/// Remembers the largest number asked about that is below a threshold: where the result may change next.
struct BelowThreshold {
    std::optional<std::int64_t> threshold;
    std::optional<std::int64_t> largest;

    void see(std::int64_t value) {
        if (threshold && value < *threshold && (!largest || value > *largest)) {
            largest = value;
        }
    }
};

/// Section 2 of the rules in docs/wrapping.md: visits the model bottom-up and constructs units as the
/// policies say, any of them; the root is left for the caller.
void wrap_recursively(WrappedModel& model, const Policies& policies, BelowThreshold& below);

}  // namespace fsdplan
