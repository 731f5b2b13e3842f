#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/config.hpp"

namespace fsdplan {

/// What a config says about rotary position embedding.
struct Rope {
    std::string type = "default";
    std::optional<Config> parameters;  ///< the object that said so
};

/// How a family reads it.
struct RopeRules {
    bool partial_by_default =
        false;  ///< a partial rotation counts for the type "default" too (phi, gpt_neox)
    std::string_view partial_key = "partial_rotary_factor";  ///< the key beside rope_parameters
    double partial = 1.0;                                    ///< when no key says so
    bool only_longrope = false;  ///< "su" and "yarn" mean "longrope", and there is no other type (phi3)
};

/// "rope_scaling", else "rope_parameters", as transformers prefers them.
Rope rope_of(const Config& config);
/// The same of a nested object, {} when it is absent.
Rope rope_of_parameters(const std::optional<Config>& parameters);

/// How many elements of a head are rotated; the buffers hold half as many frequencies, rounded up.
///
/// `head_dim_is_checked`: the family's configuration has a head_dim attribute, so transformers refuses an odd
/// one. Throws Error(input) for an unknown type or one that lacks its keys.
std::int64_t rotary_width(const Config& config, const Rope& rope, const RopeRules& rules,
                          std::int64_t head_dim, bool head_dim_is_checked);

}  // namespace fsdplan
