#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fsdplan/job.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"

// Recorded refusals (`fsdplan.error-golden`, docs/formats.md) say in a sentence what was tried; here it is as
// a model and a job.
namespace fsdplan {

struct ErrorCase {
    ModelGraph model;
    PolicySpec spec;
    UnitArguments arguments;  ///< of every unit, which fully_shard calls of a PolicySpec cannot give
    TrainingJob job;
};

struct KnownErrorCase {
    std::string_view name;
    ErrorCase (*make)(std::int64_t world);  ///< null: `skipped` says why
    std::string_view skipped;
};

/// Null for a name that is not known.
const KnownErrorCase* find_error_case(std::string_view name);

}  // namespace fsdplan
