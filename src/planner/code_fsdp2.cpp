#include <algorithm>

#include "planner/code_checkpoints.hpp"
#include "planner/code_runtimes.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view keywords = ", **sharding)";

std::string reshard_text(std::int64_t reshard) {
    return reshard == 0 ? "False" : reshard == 1 ? "True" : std::to_string(reshard);
}

// Calls that are written as one loop.
struct Loop {
    std::vector<std::string> names;
    std::optional<std::int64_t> reshard;
    bool is_group = false;
};

std::int64_t depth(const UnitCall& call) {
    return std::ranges::count(call.modules.front(), '.');
}

// Without groups the deepest come first, which keeps inner units before those around them and lets units
// with the same setting share a loop; with groups the calls stay as they are planned.
std::vector<Loop> loops_of(std::vector<UnitCall> calls, bool one_setting) {
    const bool grouped =
        std::ranges::any_of(calls, [](const UnitCall& call) { return call.modules.size() > 1; });
    if (!grouped && !one_setting) {
        std::ranges::stable_sort(calls, [](const UnitCall& a, const UnitCall& b) {
            return std::pair(-depth(a), a.own_reshard) < std::pair(-depth(b), b.own_reshard);
        });
    }
    std::vector<Loop> loops;
    for (const UnitCall& call : calls) {
        const bool is_group = call.modules.size() > 1;
        if (is_group || loops.empty() || loops.back().is_group || loops.back().reshard != call.own_reshard) {
            loops.push_back({.names = call.modules, .reshard = call.own_reshard, .is_group = is_group});
        } else {
            loops.back().names.push_back(call.modules.front());
        }
    }
    return loops;
}

class Calls {
public:
    Calls(const TrainingJob& job, const UnitsInCode& units)
        : job_(job), units_(units), root_(units.root_reshard) {
        const std::optional<std::int64_t> first =
            units.calls.empty() ? units.root_reshard : units.calls.front().own_reshard;
        const bool same =
            first == units.root_reshard &&
            std::ranges::all_of(units.calls, [&](const UnitCall& call) { return call.own_reshard == first; });
        if (same) {
            common_ = first;
        } else {
            written_ = true;
        }
    }

    /// What all calls share, as members of a dictionary.
    std::string sharding(const std::string& precision) const {
        std::string members;
        const auto add = [&](const std::string& item) { members += (members.empty() ? "" : ", ") + item; };
        if (is_hybrid(job_.strategy)) {
            add("\"mesh\": mesh");
        }
        if (!precision.empty()) {
            add("\"mp_policy\": MixedPrecisionPolicy(" + precision + ")");
        }
        if (common_) {
            add("\"reshard_after_forward\": " + reshard_text(*common_));
        }
        if (job_.offload) {
            add("\"offload_policy\": CPUOffloadPolicy()");
        }
        return "sharding = {" + members + "}\n";
    }

    /// Empty where it takes too many lines.
    std::optional<std::string> by_names() const {
        std::string code;
        std::size_t lines = 0;
        for (const Loop& loop : loops_of(units_.calls, !written_)) {
            const std::string own = argument(loop.reshard);
            if (loop.is_group) {
                code += "fully_shard([model.get_submodule(name) for name in (" + quoted_names(loop.names) +
                        ")]" + own + std::string(keywords) + "\n";
                ++lines;
                continue;
            }
            const std::vector<std::string> names = name_lines(loop.names);
            code += "for name in " + tuple_of(names) + ":\n    fully_shard(model.get_submodule(name)" + own +
                    std::string(keywords) + "\n";
            lines += names.size();
        }
        return lines <= most_lines ? std::optional(code) : std::nullopt;
    }

    std::string root() const { return "fully_shard(model" + argument(root_) + std::string(keywords) + "\n"; }
    bool has_own_settings() const { return written_; }

private:
    std::string argument(const std::optional<std::int64_t>& reshard) const {
        return written_ && reshard ? ", reshard_after_forward=" + reshard_text(*reshard) : "";
    }

    const TrainingJob& job_;
    const UnitsInCode& units_;
    std::optional<std::int64_t> root_;
    std::optional<std::int64_t> common_;
    bool written_ = false;  // each call says its own reshard_after_forward
};

/// Whether every unit of a chain gathers the next `n` early; the chain is what is left of the lists then.
std::optional<std::vector<std::string>> chain_of(const Fsdp2Options::PrefetchLists& lists) {
    std::vector<std::string> chain;
    for (const auto& [unit, targets] : lists) {
        chain.push_back(unit);
    }
    for (const std::string& target : lists.back().second) {
        chain.push_back(target);
    }
    const std::size_t n = lists.front().second.size();
    for (std::size_t i = 0; i < lists.size(); ++i) {
        const std::size_t end = std::min(i + 1 + n, chain.size());
        const auto first = chain.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        if (lists[i].second != std::vector(first, chain.begin() + static_cast<std::ptrdiff_t>(end))) {
            return std::nullopt;
        }
    }
    return chain;
}

/// Empty lists leave the order to PyTorch.
std::optional<std::string> prefetch_code(const Fsdp2Options::PrefetchLists& lists,
                                         const std::string& direction) {
    if (lists.empty()) {
        return "";
    }
    const std::string set = ".set_modules_to_" + direction + "_prefetch(";
    if (const auto chain = chain_of(lists)) {
        const std::vector<std::string> names = ordered_name_lines(*chain);
        const std::size_t n = lists.front().second.size();
        const std::string code = "order = [model.get_submodule(name) for name in " + tuple_of(names) +
                                 "]\nfor i, module in enumerate(order[:" + std::to_string(lists.size()) +
                                 "]):\n    module" + set + "order[i + 1 : i + " + std::to_string(n + 1) +
                                 "])\n";
        return names.size() <= most_lines ? std::optional(code) : std::nullopt;
    }
    std::string code = "for name, targets in {\n";
    for (const auto& [unit, targets] : lists) {
        code += "    \"" + unit + "\": (" + quoted_names(targets) + ",),\n";
    }
    code += "}.items():\n    model.get_submodule(name)" + set +
            "[model.get_submodule(target) for target in targets])\n";
    return lists.size() <= most_lines ? std::optional(code) : std::nullopt;
}

}  // namespace

std::string fsdp2_code(const ModuleTree& tree, const TrainingJob& job, const UnitsInCode& units) {
    const std::optional<CheckpointCode> checkpoints = checkpoint_code(tree, job, false, units.inner);
    const auto forward = prefetch_code(job.fsdp2.forward_prefetch, "forward");
    const auto backward = prefetch_code(job.fsdp2.backward_prefetch, "backward");
    if (!checkpoints || !forward || !backward) {
        return "";
    }
    const Calls calls(job, units);
    std::string imports = "import torch\n";
    std::string loop;
    std::string named;
    if (!units.classes.empty() && !calls.has_own_settings()) {
        const std::string is_unit =
            "module is not model and isinstance(module, (" + class_tuple(units.classes, imports) + "))";
        // Inner modules first: a unit takes what those below it have left.
        loop = "for module in reversed(list(model.modules())):\n    if " + is_unit +
               ":\n        fully_shard(module" + std::string(keywords) + "\n";
        if (checkpoints->wraps_before) {  // the unit goes around the wrapper, which is of another class
            named = "units = [name for name, module in model.named_modules() if " + is_unit + "]\n";
            loop = "for name in reversed(units):\n    fully_shard(model.get_submodule(name)" +
                   std::string(keywords) + "\n";
        }
    } else if (const std::optional<std::string> by_names = calls.by_names()) {
        loop = *by_names;
    } else {
        return "";
    }
    if (is_hybrid(job.strategy)) {
        imports += "from torch.distributed.device_mesh import init_device_mesh\n";
    }
    const std::string precision = precision_arguments(job, false);
    imports += "from torch.distributed.fsdp import fully_shard" +
               std::string(precision.empty() ? "" : ", MixedPrecisionPolicy") +
               (job.offload ? ", CPUOffloadPolicy" : "") + "\n";
    return with_imports(imports, checkpoints->imports) + "\n" + checkpoints->definitions + named +
           checkpoints->before + mesh_lines(job) + calls.sharding(precision) + loop + calls.root() +
           *forward + *backward + checkpoints->after;
}

}  // namespace fsdplan
