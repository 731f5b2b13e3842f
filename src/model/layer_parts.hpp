#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/blocks.hpp"

// Parts of a transformer layer that keep their shape from family to family.
namespace fsdplan {

/// k_proj, v_proj, q_proj, out_proj: the order of fairseq, kept by BART and all that followed it.
Scope kvqo_attention(Scope parent, std::string name, const ModuleClass& module_class, std::int64_t width,
                     bool key_bias = true);

/// activation_fn, fc1, fc2: the feed-forward part of vision towers.
Scope vision_mlp(Scope parent, std::string name, const ModuleClass& module_class, std::int64_t width,
                 std::int64_t intermediate, std::string_view act);

/// torch.nn.MultiheadAttention over one width, with its joint input projection.
Scope multihead_attention(Scope parent, std::string name, std::int64_t width);

}  // namespace fsdplan
