#include <algorithm>
#include <map>

#include "fsdplan/wrap.hpp"

namespace fsdplan {
namespace {

std::vector<std::string> class_names(const ModuleTree& tree) {
    std::vector<std::string> names;
    for (const ModuleClass& c : tree.classes) {
        names.emplace_back(short_name(c.name));
    }
    return names;
}

}  // namespace

std::vector<std::string> block_classes(const ModuleTree& tree) {
    const std::vector<std::string> lists{"torch.nn.modules.container.ModuleList",
                                         "torch.nn.modules.container.Sequential",
                                         "torch.nn.modules.container.ModuleDict"};
    const ClassSet containers(tree, lists);
    std::vector<char> inside_block(tree.size(), 0);
    std::vector<std::string> found;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        const auto parent = static_cast<std::size_t>(std::max(tree.parent[m], 0));
        inside_block[m] = static_cast<char>(inside_block[m] | (m == 0 ? 0 : inside_block[parent]));
        if (!containers.matches(tree, module) || inside_block[m] != 0) {
            continue;
        }
        std::map<ClassIndex, int> count;
        for (const ModuleIndex c : tree.children(module)) {
            // A block has several modules, be they in one list (T5); a list of plain layers (or of lists)
            // repeats nothing worth a unit.
            const std::int32_t modules = tree.subtree_end[at(c)] - static_cast<std::int32_t>(c);
            if (modules > 2 && !containers.matches(tree, c)) {
                ++count[tree.class_of[at(c)]];
            }
        }
        for (const auto& [class_index, repetitions] : count) {
            if (repetitions < 2) {
                continue;
            }
            const std::string& name = tree.classes[at(class_index)].name;
            if (std::ranges::find(found, name) == found.end()) {
                found.push_back(name);
            }
            for (const ModuleIndex c : tree.children(module)) {
                if (tree.class_of[at(c)] == class_index) {
                    inside_block[at(c)] = 1;
                }
            }
        }
    }
    return found;
}

std::vector<Fault> missing_classes(const ModuleTree& tree, std::span<const std::string> names,
                                   const std::string& where) {
    std::map<std::string, int, std::less<>> instances;
    for (const ClassIndex c : tree.class_of) {
        ++instances[std::string(short_name(tree.classes[at(c)].name))];
    }
    std::vector<Fault> faults;
    for (const std::string& name : names) {
        if (!ClassSet(tree, std::span(&name, 1)).empty()) {
            continue;
        }
        std::string near;
        for (const std::string& candidate : nearest_names(short_name(name), class_names(tree))) {
            const auto found = instances.find(candidate);
            near += (near.empty() ? "; did you mean " : " or ") + candidate + " (" +
                    std::to_string(found == instances.end() ? 0 : found->second) + " of them)";
        }
        faults.push_back({where, "no module of this model is a " + name + near + (near.empty() ? "" : "?")});
    }
    return faults;
}

}  // namespace fsdplan
