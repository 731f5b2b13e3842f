#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/wrap.hpp"
#include "verify/case_report.hpp"

// Units and errors as the recorders of wrap boundaries write them, beside our own.
namespace fsdplan {

/// "ValueError: …"
std::string shown_error(std::string_view type, std::string_view reason);
/// Of a diagnostic in the recorder's words; "none" without one.
std::string shown_error(const Diagnostic* error);

/// `row[key]`, an error with type and reason, beside our own.
void compare_error(const json::Value& row, const char* key, const std::string& got, CaseReport& report);

/// A recording's table "units", which its cases point into.
class UnitRows {
public:
    explicit UnitRows(const json::Value& recording) {
        for (const json::Value row : recording.at("units").elements()) {
            rows_.push_back(row);
        }
    }
    json::Value at(const json::Value& index) const {
        return rows_[static_cast<std::size_t>(index.integer(0, static_cast<std::int64_t>(rows_.size()) - 1))];
    }

private:
    std::vector<json::Value> rows_;
};

/// A unit's arguments that the recorder notes, by name, as JSON.
using NotedArguments = std::map<std::string, std::string>;

/// `row`: one of the file's "units".
void compare_unit(const json::Value& row, const Unit& unit, const ModuleTree& tree,
                  const NotedArguments& arguments, const std::string& where, CaseReport& report);

}  // namespace fsdplan
