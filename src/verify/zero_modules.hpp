#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "schedule/zero3.hpp"
#include "verify/zero_case.hpp"

namespace fsdplan {

/// The modules of a recording of stage 3 and what calls them in a micro-batch.
struct ZeroModules {
    std::vector<std::string> paths;  ///< by module
    std::vector<zero::Module> modules;
    zero::MicroBatch micro_batch;
};

/// `recording` is the file's root. Throws Error(input) for what a recording cannot say.
ZeroModules zero_modules(const json::Value& recording, const ZeroCase& run);

}  // namespace fsdplan
