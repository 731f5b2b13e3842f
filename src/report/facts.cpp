#include "report/facts.hpp"

#include <algorithm>
#include <map>

namespace fsdplan {

ParameterTotals totals_of(const ModuleTree& tree) {
    ParameterTotals totals;
    std::vector<char> seen(tree.tensors.size(), 0);
    for (const TensorIndex t : tree.parameter) {
        if (seen[at(t)] != 0) {
            continue;
        }
        seen[at(t)] = 1;
        const Tensor& tensor = tree.tensors[at(t)];
        totals.numel += tensor.numel;
        totals.trainable_numel += tensor.requires_grad ? tensor.numel : 0;
        totals.bytes += bytes_of(tensor.numel, tensor.dtype).count;
    }
    return totals;
}

Dtypes dtypes_of(const ModuleTree& tree, const TrainingJob& job) {
    std::map<DType, std::int64_t> numel;
    for (const TensorIndex t : tree.parameter) {
        numel[tree.tensors[at(t)].dtype] += tree.tensors[at(t)].numel;
    }
    Dtypes dtypes{DType::float32, DType::float32, DType::float32};
    std::int64_t most = -1;
    for (const auto& [dtype, count] : numel) {
        if (count > most) {
            most = count;
            dtypes.stored = dtype;
        }
    }
    dtypes.compute = job.param_dtype.value_or(dtypes.stored);
    // DDP computes under autocast: gradients keep the stored dtype.
    dtypes.reduce =
        runtime(job.runtime).has_units ? job.reduce_dtype.value_or(dtypes.compute) : dtypes.stored;
    return dtypes;
}

std::vector<std::int32_t> unit_of_rows(const ModuleTree& tree, const WrapPlan& plan) {
    std::vector<std::int32_t> unit_of(tree.size(), -1);
    for (std::size_t i = 0; i < plan.units.size(); ++i) {
        for (const ModuleIndex m : plan.units[i].modules) {
            unit_of[at(m)] = static_cast<std::int32_t>(i);
        }
    }
    for (std::size_t m = 1; m < tree.size(); ++m) {
        if (unit_of[m] < 0) {
            unit_of[m] = unit_of[static_cast<std::size_t>(tree.parent[m])];
        }
    }
    return unit_of;
}

bool covers_all_rows(const ModuleTree& tree, const WrapPlan& plan) {
    return std::ranges::count(unit_of_rows(tree, plan), -1) == 0;
}

std::vector<std::string> names_in_parents(const ModuleTree& tree) {
    std::vector<std::string> names(tree.size());
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const auto module = static_cast<ModuleIndex>(m);
        const auto children = tree.children(module);
        const auto words = tree.child_names(module);
        for (std::size_t i = children.size(); i-- > 0;) {  // the first of several slots wins
            if (tree.parent[at(children[i])] == static_cast<std::int32_t>(m)) {
                names[at(children[i])] = words[i];
            }
        }
    }
    return names;
}

}  // namespace fsdplan
