#pragma once

#include "base/json.hpp"
#include "fsdplan/wrap.hpp"

// A recorded case of wrapping (`fsdplan.wrap-cases`, docs/formats.md) in our own terms. `row` is one of the
// file's "cases".
namespace fsdplan {

PolicySpec recorded_policy(const json::Value& row);

/// `file` is the file's root, which says what the case does not.
WrapOptions recorded_options(const json::Value& file, const json::Value& row);

}  // namespace fsdplan
