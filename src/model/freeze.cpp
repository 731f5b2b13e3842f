#include <algorithm>

#include "fsdplan/model.hpp"

namespace fsdplan {
namespace {

/// Whether the pattern matches the path or the path of a module above it.
bool covers(std::string_view pattern, std::string_view path) {
    while (!glob_matches(pattern, path)) {
        const std::size_t dot = path.rfind('.');
        if (dot == std::string_view::npos) {
            return false;
        }
        path = path.substr(0, dot);
    }
    return true;
}

struct NamedParameter {
    std::string path;
    TensorIndex tensor{};
};

/// All parameters under all their paths: what is tied or shared is frozen by any of them.
class Names {
public:
    explicit Names(const ModuleTree& tree) : tree_(tree), path_(tree.size()) {
        std::vector<char> reached(tree.size(), 0);
        struct SecondSlot {
            std::string path;
            ModuleIndex module{};
        };
        std::vector<SecondSlot> shared;
        for (std::size_t row = 0; row < tree.size(); ++row) {
            const ModuleIndex m{static_cast<std::int32_t>(row)};
            for (std::size_t i = 0; i < tree.children(m).size(); ++i) {
                const ModuleIndex child = tree.children(m)[i];
                std::string path = join_path(path_[row], tree.child_names(m)[i]);
                if (reached[at(child)] == 0) {
                    reached[at(child)] = 1;
                    path_[at(child)] = std::move(path);
                } else {
                    shared.push_back({std::move(path), child});
                }
            }
            add(m, path_[row]);
        }
        for (const SecondSlot& slot : shared) {
            const std::size_t prefix = path_[at(slot.module)].size();
            for (auto row = at(slot.module);
                 row < static_cast<std::size_t>(tree.subtree_end[at(slot.module)]); ++row) {
                add(ModuleIndex{static_cast<std::int32_t>(row)}, slot.path + path_[row].substr(prefix));
            }
        }
    }

    const std::vector<NamedParameter>& parameters() const { return parameters_; }
    const std::vector<std::string>& module_paths() const { return path_; }

private:
    void add(ModuleIndex m, const std::string& path) {
        for (std::size_t i = 0; i < tree_.parameters(m).size(); ++i) {
            parameters_.push_back({join_path(path, tree_.parameter_names(m)[i]), tree_.parameters(m)[i]});
        }
    }

    const ModuleTree& tree_;
    std::vector<std::string> path_;  // by row
    std::vector<NamedParameter> parameters_;
};

}  // namespace

ModelGraph with_frozen(const ModelGraph& graph, std::span<const std::string> globs) {
    const ModuleTree tree = flatten(graph);
    const Names names(tree);
    ModelGraph out = graph;
    for (const std::string& glob : globs) {
        bool found = false;
        for (const NamedParameter& parameter : names.parameters()) {
            if (covers(glob, parameter.path)) {
                out.tensors[at(parameter.tensor)].requires_grad = false;
                found = true;
            }
        }
        if (!found) {
            throw Error(
                ErrorKind::input, "--freeze",
                "no parameter is at or below \"" + glob + '"' + did_you_mean(glob, names.module_paths()));
        }
    }
    return out;
}

}  // namespace fsdplan
