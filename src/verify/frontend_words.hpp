#pragma once

#include <map>
#include <string>

#include "base/json.hpp"
#include "fsdplan/frontend.hpp"
#include "verify/case_report.hpp"

// Settings of front ends as the recorders write them, beside our own.
namespace fsdplan {

/// What a recorded value is in Python; a list must hold texts, an object names of dtypes.
PythonValue python_value(const json::Value& value);
PythonArguments python_arguments(const json::Value& object);

/// Values by name, as JSON on one line each.
using Fields = std::map<std::string, std::string>;
Fields recorded_fields(const json::Value& object);
Fields shown_fields(const PythonArguments& arguments);
/// Of the plugin object, every field that the recorder shows.
Fields shown_fields(const AcceleratePlugin& plugin);
/// Entries of `other` that `base` does not have alike.
Fields changes(const Fields& base, const Fields& other);

void compare_fields(const std::string& where, const Fields& expected, const Fields& got, CaseReport& report);

/// A front end's error in the recorder's words.
std::string shown_error(const FrontendError& error);

}  // namespace fsdplan
