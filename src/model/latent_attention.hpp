#pragma once

#include <optional>

#include "model/decoder.hpp"

namespace fsdplan {

/// DeepSeek's multi-head latent attention: keys and values, and mostly queries too, pass through a low rank.
struct LatentAttention {
    std::optional<std::int64_t> q_rank;  ///< nothing: one full query projection
    std::int64_t kv_rank = 0;
    std::int64_t rope_dim = 0;   ///< part of a key that is rotated, shared by all heads
    std::int64_t q_width = 0;    ///< all heads' queries
    std::int64_t kv_width = 0;   ///< all heads' unrotated keys and values
    std::int64_t out_width = 0;  ///< all heads' values
    bool bias = false;
};

LatentAttention latent_attention(const Config& config, const DecoderSizes& sizes);

void latent_projections(Scope attention, const PrefixedClasses& classes, const DecoderSizes& sizes,
                        const LatentAttention& latent);

}  // namespace fsdplan
