#pragma once

#include "base/json.hpp"
#include "fsdplan/wrap.hpp"

namespace fsdplan {

/// [["transformers…LlamaDecoderLayer", true], ["fqn:lm_head", {"sharding_strategy": "NO_SHARD"}], …]
std::vector<PolicySpec::Rule> read_rules(const json::Value& rules);

/// ["model.layers.0", ["model.embed_tokens", "lm_head"], ""]: one entry a call, a list for the list form.
std::vector<PolicySpec::Call> read_calls(const json::Value& calls,
                                         const std::vector<std::string>& ignored_parameters);

}  // namespace fsdplan
