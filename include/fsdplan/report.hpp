#pragma once

#include <string>
#include <string_view>

// Results on their way out. A result is a JSON document, "format": "fsdplan.result";
// reports/result.schema.json describes it, and every other form of a report holds or is made from it.
namespace fsdplan {

/// Throws Error(input) at `file` unless `json` is a result that this version can show: format, version, and
/// every value that a report reads, with indices in range. Further keys are let through.
void check_result(std::string_view json, std::string_view file);

/// One HTML page that needs nothing else: template, style and script of the binary around `result_json`,
/// which is a result as check_result() accepts it and is in the page whole (element report-data, `<` as
/// \u003c).
std::string html_report(std::string_view result_json);

}  // namespace fsdplan
