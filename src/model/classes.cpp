#include <algorithm>

#include "fsdplan/model.hpp"

namespace fsdplan {

std::string_view short_name(std::string_view class_name) {
    const std::size_t dot = class_name.rfind('.');
    return dot == std::string_view::npos ? class_name : class_name.substr(dot + 1);
}

std::string join_path(std::string_view a, std::string_view b) {
    std::string out(a);
    if (!a.empty() && !b.empty()) {
        out += '.';
    }
    return out += b;
}

ClassSet::ClassSet(const ModuleTree& tree, std::span<const std::string> names) {
    const auto means = [names](std::string_view class_name) {
        return std::ranges::any_of(names, [class_name](const std::string& n) {
            return n == class_name || n == short_name(class_name);
        });
    };
    member_.reserve(tree.classes.size());
    for (const ModuleClass& c : tree.classes) {
        const bool member = means(c.name) || std::ranges::any_of(c.bases, [&](const std::string& base) {
                                return means(base);
                            });
        member_.push_back(member ? 1 : 0);
        empty_ = empty_ && !member;
    }
}

}  // namespace fsdplan
