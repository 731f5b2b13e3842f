#pragma once

#include "verify/case_report.hpp"
#include "verify/published/row.hpp"

namespace fsdplan {

/// Predicts a row and puts what was published beside it. A row that is outside is skipped with its reason.
void compare_with_published(const PublishedRow& row, Verification& out);

}  // namespace fsdplan
