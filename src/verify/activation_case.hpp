#pragma once

#include <string>

#include "base/json.hpp"
#include "fsdplan/verify.hpp"

namespace fsdplan {

/// What PyTorch keeps for backward and computes in a plain model, against an export of the same model: the
/// file of the recording's name in "exports" beside the recording's folder or inside of it. Bytes and FLOPs
/// of each module's call and of the whole, and the bytes alive.
void replay_activations(const json::Value& recording, const std::string& path, Verification& out);

}  // namespace fsdplan
