#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"

// Rotary position embedding, as far as it decides sizes: how much of a head is rotated.
namespace fsdplan {

/// What a config says about it.
struct Rope {
    std::string type = "default";
    std::vector<Config> objects = {};  ///< the first that has a key counts

    /// The object with this key, if any.
    std::optional<Config> with(std::string_view key) const;
};

/// "rope_scaling", else "rope_parameters", as transformers prefers them.
Rope rope_of(const Config& config);
/// The same of nested objects.
Rope rope_of_objects(std::vector<Config> objects);

/// The same for one of several kinds of attention: its entry in rope_parameters. When `scaled`, the keys of a
/// rope_scaling, which older files have, come before it.
Rope rope_of_kind(const Config& config, const std::string& kind, bool scaled);

/// How a family reads it.
struct RopeRules {
    bool partial_by_default = false;  ///< the type "default" may rotate a part of the head (phi, gpt_neox)
    std::string_view partial_key = "partial_rotary_factor";  ///< the key beside rope_parameters
    double partial = 1.0;                                    ///< when no key says so
};

/// The part of a head that is rotated.
double partial_factor(const Config& config, const Rope& rope, const RopeRules& rules);

/// The attribute head_dim of a configuration object.
enum class HeadDim : std::uint8_t { absent, null, given };

/// How many elements of a head are rotated; the buffers hold half as many frequencies, rounded up.
/// Throws Error(input) for what transformers refuses: an unknown type or one that lacks its keys, sizes that
/// do not fit together.
std::int64_t rotary_width(const Config& config, const Rope& rope, const RopeRules& rules,
                          std::int64_t head_dim, HeadDim attribute);

}  // namespace fsdplan
