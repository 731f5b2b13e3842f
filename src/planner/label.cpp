#include <algorithm>
#include <map>

#include "base/quantity.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_parts = 4;

std::string class_word(const ModuleTree& tree, ModuleIndex m) {
    return std::string(short_name(tree.class_info(m).name));
}

std::string last_part(const std::string& path) {
    return path.substr(path.rfind('.') + 1);
}

bool encloses_units(const ModuleTree& tree, const std::vector<char>& is_unit, ModuleIndex m) {
    for (std::size_t row = at(m) + 1; row < static_cast<std::size_t>(tree.subtree_end[at(m)]); ++row) {
        if (is_unit[row] != 0) {
            return true;
        }
    }
    return false;
}

/// The class that most of what a unit keeps for itself belongs to: of the largest modules without units
/// inside.
std::string left_over(const ModuleTree& tree, const std::vector<char>& is_unit, ModuleIndex unit) {
    std::map<std::string, std::int64_t> numel;
    const auto end = static_cast<std::size_t>(tree.subtree_end[at(unit)]);
    for (std::size_t row = at(unit) + 1; row < end;) {
        const auto module = static_cast<ModuleIndex>(row);
        if (is_unit[row] != 0) {
            row = static_cast<std::size_t>(tree.subtree_end[row]);
        } else if (encloses_units(tree, is_unit, module) ||
                   short_name(tree.class_info(module).name) == "ModuleList") {
            ++row;
        } else {
            numel[class_word(tree, module)] += tree.numel[row];
            row = static_cast<std::size_t>(tree.subtree_end[row]);
        }
    }
    const auto most =
        std::ranges::max_element(numel, {}, &std::pair<const std::string, std::int64_t>::second);
    return most == numel.end() || most->second == 0 ? std::string() : most->first;
}

struct Part {
    std::string text;
    std::int64_t numel = 0;
};

}  // namespace

std::string label_of(const ModuleTree& tree, const WrapPlan& plan) {
    std::vector<char> is_unit(tree.size(), 0);
    std::map<std::string, std::int64_t> instances;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        instances[class_word(tree, static_cast<ModuleIndex>(m))] += tree.numel[m] > 0 ? 1 : 0;
    }
    struct Group {
        std::int64_t count = 0;
        std::int64_t numel = 0;
        const Unit* first = nullptr;
    };
    std::map<std::string, Group> groups;
    for (const Unit& unit : plan.units) {
        for (const ModuleIndex m : unit.modules) {
            is_unit[at(m)] = 1;
        }
        if (at(unit.module) == 0 || unit.parameters.empty()) {
            continue;
        }
        Group& group = groups[class_word(tree, unit.module)];
        group.first = group.first == nullptr ? &unit : group.first;
        ++group.count;
        group.numel += unit.numel;
    }
    std::vector<Part> parts;
    for (const auto& [word, group] : groups) {
        const ModuleIndex module = group.first->module;
        const std::int64_t all = instances[word];
        std::string text;
        if (group.count == 1 && encloses_units(tree, is_unit, module)) {
            const std::string rest = left_over(tree, is_unit, module);
            text = (rest.empty() ? "the rest" : rest + " left over") + " in " + word + " (" +
                   show_numel(group.numel) + ")";
        } else if (group.count == 1 && all == 1) {
            text = tree.children(module).empty() ? last_part(group.first->path) : word;
        } else if (group.count == 1) {
            text = last_part(group.first->path);
        } else if (group.count >= all) {
            text = (tree.children(module).empty() ? "every " : "one unit per ") + word;
        } else {
            text = std::to_string(group.count) + " of " + std::to_string(all) + " " + word;
        }
        parts.push_back({std::move(text), group.numel});
    }
    if (parts.empty()) {
        return "no inner wrapping";
    }
    std::ranges::stable_sort(parts, std::greater<>{}, &Part::numel);
    std::string label;
    for (std::size_t i = 0; i < std::min(parts.size(), most_parts); ++i) {
        label += (i == 0 ? "" : ", ") + parts[i].text;
    }
    if (parts.size() > most_parts) {
        label += " and " + std::to_string(parts.size() - most_parts) + " more";
    }
    return label;
}

}  // namespace fsdplan
