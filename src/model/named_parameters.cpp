#include "model/named_parameters.hpp"

#include <span>

namespace fsdplan {

std::vector<NamedParameter> named_parameters(const ModuleTree& tree) {
    std::vector<NamedParameter> out;
    std::vector<char> seen(tree.tensors.size(), 0);
    for (std::size_t row = 0; row < tree.size(); ++row) {
        const auto m = static_cast<ModuleIndex>(row);
        const std::span<const TensorIndex> tensors = tree.parameters(m);
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            if (seen[at(tensors[i])]++ == 0) {
                out.push_back({join_path(tree.path(m), tree.parameter_names(m)[i]), tensors[i]});
            }
        }
    }
    return out;
}

}  // namespace fsdplan
