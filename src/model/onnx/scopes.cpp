#include "model/onnx/scopes.hpp"

#include <algorithm>
#include <unordered_set>

#include "model/attribute_path.hpp"

namespace fsdplan::onnx {
namespace {

bool is_proper(const std::vector<Scope>& scopes) {
    return std::ranges::all_of(scopes, [](const Scope& s) { return is_attribute_path(s.path); });
}

/// Without torch.export's mark of a further call, "norm@1".
std::string_view without_call(std::string_view path) {
    return path.substr(0, path.find('@'));
}

}  // namespace

std::vector<std::string> python_list(std::string_view text) {
    std::vector<std::string> out;
    std::size_t at = text.find('[');
    while (at != std::string_view::npos) {
        at = text.find_first_of("'\"", at);
        if (at == std::string_view::npos) {
            break;
        }
        const std::size_t end = text.find(text[at], at + 1);
        if (end == std::string_view::npos) {
            return {};
        }
        out.emplace_back(text.substr(at + 1, end - at - 1));
        at = end + 1;
    }
    return out;
}

std::vector<Scope> scopes_of_metadata(std::string_view name_scopes, std::string_view class_hierarchy) {
    const std::vector<std::string> paths = python_list(name_scopes);
    const std::vector<std::string> classes = python_list(class_hierarchy);
    std::vector<Scope> out;
    // The first is the root, the last the operator.
    for (std::size_t i = 1; i + 1 < paths.size(); ++i) {
        out.push_back({std::string(without_call(paths[i])), paths[i],
                       classes.size() == paths.size() ? classes[i] : std::string()});
    }
    return is_proper(out) ? out : std::vector<Scope>{};
}

std::vector<Scope> scopes_of_name(std::string_view name) {
    std::vector<Scope> out;
    if (!name.starts_with('/')) {
        return out;
    }
    std::string path;
    std::string_view around;
    std::size_t begin = 1;
    for (std::size_t end = name.find('/', begin); end != std::string_view::npos;
         end = name.find('/', begin)) {
        const std::string_view part = name.substr(begin, end - begin);
        // Members of a container that is called itself repeat its name: "/head/head.0".
        const bool repeats = !around.empty() && part.size() > around.size() + 1 && part.starts_with(around) &&
                             part[around.size()] == '.';
        path = join_path(path, repeats ? part.substr(around.size() + 1) : part);
        out.push_back({path, path, {}});
        around = part.substr(part.rfind('.') == std::string_view::npos ? 0 : part.rfind('.') + 1);
        begin = end + 1;
    }
    return is_proper(out) ? out : std::vector<Scope>{};
}

void find_repeated_calls(Graph& graph) {
    std::unordered_set<std::string> known;  // modules that are called, or hold tensors
    std::unordered_set<std::string> holders;
    for (const Node& node : graph.nodes) {
        for (const Scope& scope : node.scopes) {
            known.insert(scope.path);
        }
    }
    for (const ValueId v : graph.initializers) {
        const std::string& name = graph.name(v);
        if (!is_attribute_path(name)) {
            continue;
        }
        for (std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
             dot = name.rfind('.', dot - 1)) {
            holders.insert(name.substr(0, dot));
        }
    }
    for (Node& node : graph.nodes) {
        std::string outer;       // the path before
        std::string real_outer;  // … and the module's own
        for (Scope& scope : node.scopes) {
            const std::string path = scope.path;
            std::string local = path.substr(outer.empty() ? 0 : outer.size() + 1);
            const std::size_t mark = local.rfind('_');
            const bool numbered = mark != std::string::npos && mark + 1 < local.size() &&
                                  local.find_first_not_of("0123456789", mark + 1) == std::string::npos;
            const std::string first = numbered ? join_path(real_outer, local.substr(0, mark)) : "";
            const std::string own = join_path(real_outer, local);
            scope.path = numbered && known.contains(first) && !holders.contains(own) ? first : own;
            outer = path;
            real_outer = scope.path;
        }
    }
}

}  // namespace fsdplan::onnx
