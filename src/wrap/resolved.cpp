#include "wrap/resolved.hpp"

namespace fsdplan {
namespace {

void ignore_subtree(const ModuleTree& tree, ModuleIndex m, Resolved& out) {
    if (out.ignored(m)) {
        return;
    }
    out.ignored_module[at(m)] = 1;
    for (const TensorIndex t : tree.parameters(m)) {
        out.ignored_tensor[at(t)] = 1;
    }
    for (const ModuleIndex c : tree.children(m)) {
        ignore_subtree(tree, c, out);
    }
}

/// Paths below the last module that exists: what the user may have meant.
std::vector<std::string> paths_nearby(const ModuleTree& tree, std::string_view path, bool parameters) {
    std::string_view prefix = path;
    std::optional<ModuleIndex> m;
    do {
        const std::size_t dot = prefix.rfind('.');
        prefix = dot == std::string_view::npos ? std::string_view() : prefix.substr(0, dot);
        m = tree.find(prefix);
    } while (!m);
    std::vector<std::string> out;
    for (const std::string& name : tree.child_names(*m)) {
        out.push_back(join_path(prefix, name));
    }
    if (parameters) {
        for (const std::string& name : tree.parameter_names(*m)) {
            out.push_back(join_path(prefix, name));
        }
    }
    return out;
}

[[noreturn]] void no_such(const ModuleTree& tree, std::string_view path, std::string_view where,
                          bool parameter) {
    throw Error(ErrorKind::input, std::string(where),
                std::string("the model has no ") + (parameter ? "parameter" : "module") + " \"" +
                    std::string(path) + '"' + did_you_mean(path, paths_nearby(tree, path, parameter)));
}

}  // namespace

ModuleIndex require_module(const ModuleTree& tree, std::string_view path, std::string_view where) {
    const std::optional<ModuleIndex> m = tree.find(path);
    if (!m) {
        no_such(tree, path, where, false);
    }
    return *m;
}

TensorIndex require_parameter(const ModuleTree& tree, std::string_view path, std::string_view where) {
    const std::optional<TensorIndex> t = tree.find_parameter(path);
    if (!t) {
        no_such(tree, path, where, true);
    }
    return *t;
}

Resolved resolve(const ModuleTree& tree, const WrapOptions& options) {
    Resolved out;
    out.options = &options;
    out.ignored_module.assign(tree.size(), 0);
    out.ignored_tensor.assign(tree.tensors.size(), 0);
    for (const std::string& path : options.ignored_modules) {
        ignore_subtree(tree, require_module(tree, path, "ignored modules"), out);
    }
    for (const std::string& path : options.ignored_parameters) {
        out.ignored_tensor[at(require_parameter(tree, path, "ignored parameters"))] = 1;
    }
    if (options.mixed_precision) {
        out.keep_full_precision =
            ClassSet(tree, options.keep_full_precision.value_or(default_keep_full_precision()));
    }
    return out;
}

}  // namespace fsdplan
