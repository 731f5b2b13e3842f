#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace fsdplan {

/// Names of a recording's parameters by row, and back.
class ParameterTable {
public:
    /// Fails for a name that is in the table.
    void add(const json::Value& name);

    /// Fails for a name that is not in the table.
    std::int32_t row_of(const json::Value& name) const;

    const std::string& name_of(std::int32_t row) const { return names_[static_cast<std::size_t>(row)]; }
    /// Names of these rows joined by blanks.
    std::string names_of(std::span<const std::int32_t> rows) const;
    const std::vector<std::string>& names() const { return names_; }

private:
    std::vector<std::string> names_;
    std::map<std::string, std::int32_t, std::less<>> rows_;
};

}  // namespace fsdplan
