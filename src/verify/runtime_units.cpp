#include "verify/runtime_units.hpp"

#include <algorithm>

#include "schedule/fsdp1_handle.hpp"
#include "verify/traffic.hpp"
#include "wrap/flat_parameter.hpp"

namespace fsdplan {
namespace {

std::string shape_text(std::span<const std::int64_t> shape) {
    std::string out = "[";
    for (const std::int64_t size : shape) {
        out += (out.size() == 1 ? "" : ", ") + std::to_string(size);
    }
    return out + "]";
}

std::string shape_text(const json::Value& shape) {
    std::vector<std::int64_t> sizes;
    for (const json::Value size : shape.elements()) {
        sizes.push_back(size.integer());
    }
    return shape_text(sizes);
}

/// Second and further names of the unit's parameters, as [alias, first name], seen from the unit's module.
class Aliases {
public:
    Aliases(const ModuleTree& tree, const Unit& unit) : tree_(tree) {
        first_.resize(tree.tensors.size());
        seen_.resize(tree.tensors.size(), 0);
        for (const TensorIndex t : unit.parameters) {
            seen_[at(t)] = 1;
        }
        visit(unit.module, "");
    }
    std::string text;

private:
    void visit(ModuleIndex m, const std::string& path) {
        for (std::size_t i = 0; i < tree_.parameters(m).size(); ++i) {
            const TensorIndex t = tree_.parameters(m)[i];
            const std::string name = join_path(path, tree_.parameter_names(m)[i]);
            if (seen_[at(t)] == 1) {
                seen_[at(t)] = 2;
                first_[at(t)] = name;
            } else if (seen_[at(t)] == 2) {
                text += (text.empty() ? "" : ", ") + name + " is " + first_[at(t)];
            }
        }
        for (std::size_t i = 0; i < tree_.children(m).size(); ++i) {
            visit(tree_.children(m)[i], join_path(path, tree_.child_names(m)[i]));
        }
    }

    const ModuleTree& tree_;
    std::vector<std::string> first_;
    std::vector<char> seen_;  // 1: of the unit, 2: named
};

/// A path as seen from the unit's module.
std::string inside(const Unit& unit, const std::string& path) {
    return unit.path.empty() || !path.starts_with(unit.path + ".") ? path : path.substr(unit.path.size() + 1);
}

class UnitComparison {
public:
    UnitComparison(const json::Value& row, const Unit& unit, const ModuleTree& tree, const TrainingJob& job,
                   CaseReport& report)
        : row_(row), unit_(unit), tree_(tree), job_(job), report_(report) {}

    void fsdp1() {
        if (unit_.parameters.empty()) {
            compare("params", "0", std::to_string(row_.at("params").size()));
            return;
        }
        const fsdp1::Settings own = fsdp1::settings_of(unit_, tree_, job_);
        compare("strategy", row_.at("strategy").string(), name(own.strategy));
        compare("dtype", row_.at("dtype").string(), recorded_name(own.orig));
        compare("param_dtype", row_.at("param_dtype").string(), recorded_name(own.param));
        compare("reduce_dtype", row_.at("reduce_dtype").string(), recorded_name(own.reduce));
        compare("requires_grad", row_.at("requires_grad").boolean() ? "yes" : "no",
                unit_.requires_grad ? "yes" : "no");
        const std::int64_t shard_ranks = own.strategy == Strategy::no_shard ? 1 : own.ranks;
        flat_layout_of(own.param, own.ranks, shard_ranks);
    }

    void fsdp2() {
        std::string recorded;
        for (const json::Value p : row_.at("params").elements()) {
            recorded += std::string(p.at("name").string()) + " " + shape_text(p.at("shape")) + " " +
                        std::string(p.at("dtype").string()) +
                        (p.at("requires_grad").boolean() ? "" : " frozen") + " padded " +
                        shape_text(p.at("padded_shard")) + " shard " + shape_text(p.at("shard")) + " dim " +
                        std::to_string(p.at("dim").integer()) + "; ";
        }
        compare("parameters", recorded, row_shards());
    }

private:
    void compare(const std::string& what, std::string_view expected, std::string_view got) {
        report_.compare("unit \"" + unit_.path + "\" " + what, std::string(expected), std::string(got));
    }

    void flat_layout_of(DType param, std::int64_t ranks, std::int64_t shard_ranks) {
        std::vector<std::int64_t> numels;
        for (const TensorIndex t : unit_.parameters) {
            numels.push_back(tree_.tensors[at(t)].numel);
        }
        const FlatLayout layout = flat_layout(numels, job_.use_orig_params, param, static_cast<int>(ranks));
        std::string own;
        std::int64_t end = 0;
        const auto pad = [&](std::int64_t to) {
            own += to > end ? "pad " + std::to_string(to - end) + "; " : "";
        };
        for (std::size_t i = 0; i < numels.size(); ++i) {
            pad(layout.offsets[i]);
            own += inside(unit_, unit_.parameter_paths[i]) + " " +
                   shape_text(tree_.tensors[at(unit_.parameters[i])].shape) + "; ";
            end = layout.offsets[i] + numels[i];
        }
        pad(layout.numel);
        std::string recorded;
        for (const json::Value entry : row_.at("layout").elements()) {
            const auto padding = entry.find("pad");
            recorded += padding
                            ? "pad " + std::to_string(padding->integer())
                            : std::string(entry.at("name").string()) + " " + shape_text(entry.at("shape"));
            recorded += "; ";
        }
        compare("layout", recorded, own);
        const std::int64_t shard = ceil_div(layout.numel, shard_ranks);
        compare("numel", std::to_string(row_.at("numel").integer()), std::to_string(layout.numel));
        compare("shard_numel", std::to_string(row_.at("shard_numel").integer()), std::to_string(shard));
        const std::int64_t own_pad = std::max<std::int64_t>(0, shard - layout.numel);
        compare("shard_pad", std::to_string(row_.at("shard_pad").integer()), std::to_string(own_pad));
        std::string aliases;
        for (const json::Value pair : row_.at("shared").elements()) {
            const std::vector<std::string> names = pair.strings();
            aliases += (aliases.empty() ? "" : ", ") + names.at(0) + " is " + names.at(1);
        }
        compare("shared", aliases, Aliases(tree_, unit_).text);
    }

    std::string row_shards() const {
        std::string out;
        for (std::size_t i = 0; i < unit_.parameters.size(); ++i) {
            const Tensor& tensor = tree_.tensors[at(unit_.parameters[i])];
            const std::int64_t ranks = job_.mesh.shard;
            const auto dim = static_cast<std::int64_t>(tensor.shape.size()) > job_.fsdp2.shard_dim
                                 ? static_cast<std::size_t>(job_.fsdp2.shard_dim)
                                 : 0;
            std::vector<std::int64_t> padded = tensor.shape;
            std::vector<std::int64_t> owned = tensor.shape;
            if (dim == 0) {
                const RowShard rows = row_shard(tensor.shape, ranks, 0);
                padded.front() = rows.padded_rows;
                owned.front() = rows.owned_rows;
            } else {
                padded[dim] = owned[dim] = tensor.shape[dim] / ranks;
            }
            out += first_name(unit_.parameters[i], unit_.parameter_paths[i]) + " " +
                   shape_text(tensor.shape) + " " + recorded_name(tensor.dtype) +
                   (tensor.requires_grad ? "" : " frozen") + " padded " + shape_text(padded) + " shard " +
                   shape_text(owned) + " dim " + std::to_string(dim) + "; ";
        }
        return out;
    }

    // A tied parameter is named after its first path in named_parameters().
    std::string first_name(TensorIndex t, const std::string& met_as) const {
        for (std::size_t m = 0; m < tree_.size(); ++m) {
            const auto module = static_cast<ModuleIndex>(m);
            const auto found = std::ranges::find(tree_.parameters(module), t);
            if (found != tree_.parameters(module).end()) {
                const auto slot = static_cast<std::size_t>(found - tree_.parameters(module).begin());
                return join_path(tree_.path(module), tree_.parameter_names(module)[slot]);
            }
        }
        return met_as;
    }

    json::Value row_;
    const Unit& unit_;
    const ModuleTree& tree_;
    const TrainingJob& job_;
    CaseReport& report_;
};

ModuleIndex first_module(const Unit& unit) {
    return unit.modules.empty() ? unit.module : *std::ranges::min_element(unit.modules);
}

std::string name_of(const ModuleTree& tree, const Unit& unit) {
    if (unit.modules.size() <= 1) {
        return tree.path(unit.module);
    }
    std::vector<ModuleIndex> modules = unit.modules;
    std::ranges::sort(modules);
    std::string out;
    for (const ModuleIndex m : modules) {
        out += (out.empty() ? "" : ",") + tree.path(m);
    }
    return out;
}

}  // namespace

void compare_units(const json::Value& units, const ModuleTree& tree, const RuntimeCase& recorded,
                   CaseReport& report) {
    std::vector<const Unit*> own;
    for (const Unit& unit : recorded.plan.units) {
        own.push_back(&unit);
    }
    std::ranges::stable_sort(own, {}, [](const Unit* unit) { return first_module(*unit); });
    std::size_t i = 0;
    for (const json::Value row : units.elements()) {
        const std::string where = "unit " + std::to_string(i);
        if (i >= own.size()) {
            report.compare(where, std::string(row.at("fqn").string()), "nothing");
            return;
        }
        const Unit& unit = *own[i++];
        report.compare(where, std::string(row.at("fqn").string()), name_of(tree, unit));
        UnitComparison comparison(row, unit, tree, recorded.job, report);
        if (recorded.job.runtime == "fsdp1") {
            comparison.fsdp1();
        } else {
            comparison.fsdp2();
        }
    }
    report.compare("units", std::to_string(units.size()), std::to_string(own.size()));
}

}  // namespace fsdplan
