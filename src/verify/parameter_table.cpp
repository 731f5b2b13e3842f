#include "verify/parameter_table.hpp"

#include "verify/words.hpp"

namespace fsdplan {

void ParameterTable::add(const json::Value& name) {
    if (!rows_.emplace(name.string(), static_cast<std::int32_t>(names_.size())).second) {
        name.fail("a name that no other parameter has");
    }
    names_.emplace_back(name.string());
}

std::int32_t ParameterTable::row_of(const json::Value& name) const {
    const auto found = rows_.find(name.string());
    if (found == rows_.end()) {
        name.fail("the name of a parameter");
    }
    return found->second;
}

std::string ParameterTable::names_of(std::span<const std::int32_t> rows) const {
    std::vector<std::string> words;
    for (const std::int32_t row : rows) {
        words.push_back(name_of(row));
    }
    return joined(words);
}

}  // namespace fsdplan
