#include "model/onnx/scopes.hpp"

#include <algorithm>

namespace fsdplan::onnx {
namespace {

constexpr std::size_t deepest = 64;  // far more than any model

bool is_attribute_path(std::string_view path) {
    return !path.empty() && path.front() != '.' && path.back() != '.' &&
           path.find("..") == std::string_view::npos;
}

bool is_proper(const std::vector<Scope>& scopes) {
    return scopes.size() <= deepest &&
           std::ranges::all_of(scopes, [](const Scope& s) { return is_attribute_path(s.path); });
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

}  // namespace fsdplan::onnx
