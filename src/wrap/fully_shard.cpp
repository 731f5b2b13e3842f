#include "wrap/fully_shard.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

/// The name at the end of a path.
std::string last_part(const std::string& path) {
    return path.substr(path.rfind('.') + 1);
}

class FullyShard {
public:
    FullyShard(const ModuleTree& tree, const Resolved& resolved) : tree_(tree), resolved_(resolved) {
        state_of_.assign(tree.size(), -1);
        sharded_.assign(tree.parameter.size(), 0);
        visited_.assign(tree.size(), 0);
        seen_.assign(tree.tensors.size(), 0);
    }

    void call(const PolicySpec::Call& call) {
        std::vector<ModuleIndex> modules;
        for (const std::string& path : call.modules) {
            modules.push_back(require_module(tree_, path, "fully_shard calls"));
        }
        if (call.list) {
            modules = without_descendants(modules);
        }
        Unit unit;
        unit.module = modules.front();
        unit.modules = modules;
        unit.path = tree_.path(unit.module);
        unit.arguments = call.arguments;
        const auto index = static_cast<std::int32_t>(plan_.units.size());
        for (const ModuleIndex m : modules) {  // also finds a module that is listed twice
            if (state_of_[at(m)] >= 0) {
                fail(WrapRule::fully_shard_twice, "AssertionError", unit.path, {},
                     "fully_shard was applied to \"" + tree_.path(m) + "\" before; a module takes it once",
                     "Each distinct composable distributed API can only be applied to a module once. "
                     "fully_shard has already been applied to the following module:");
                return;
            }
            state_of_[at(m)] = index;
        }
        if (!call.list && is_container(unit.module)) {
            fail(WrapRule::fully_shard_container, "ValueError", unit.path, {},
                 "\"" + unit.path +
                     "\" is a container without a forward (unless its class defines one); call " +
                     "fully_shard on its children, or on a list of them",
                 "fully_shard does not support containers that do not implement forward: " +
                     std::string(short_name(tree_.class_info(unit.module).name)) + "(");
            return;
        }
        const std::vector<TensorIndex> ignored = ignored_by(call);
        const Managed managed = collect(modules, ignored);
        if (!acceptable(managed, unit)) {
            return;
        }
        for (const std::int32_t registration : managed.registrations) {
            sharded_[static_cast<std::size_t>(registration)] = 1;
        }
        unit.parameters = managed.tensors;
        unit.requires_grad = false;
        for (const TensorIndex t : unit.parameters) {
            unit.numel += tree_.tensors[at(t)].numel;
            unit.requires_grad = unit.requires_grad || tree_.tensors[at(t)].requires_grad;
        }
        unit.parameter_paths = first_names(unit.modules, managed);
        plan_.construction_order.push_back(index);
        plan_.units.push_back(std::move(unit));
    }

    bool stopped() const { return stopped_; }

    WrapPlan finish() {
        plan_.complete = !stopped_;
        if (!stopped_ && !plan_.units.empty()) {
            check_first_forward();
        }
        return std::move(plan_);
    }

private:
    struct Managed {
        std::vector<TensorIndex> tensors;
        std::vector<std::int32_t> registrations;
    };

    void fail(WrapRule rule, const char* type, std::string unit, std::vector<std::string> tensors,
              std::string message, std::string error_text = {}) {
        plan_.diagnostics.push_back({.rule = rule,
                                     .severity = Severity::error,
                                     .error_type = type,
                                     .unit = std::move(unit),
                                     .tensors = std::move(tensors),
                                     .message = std::move(message),
                                     .error_text = std::move(error_text)});
        stopped_ = true;
    }

    bool is_below(ModuleIndex candidate, ModuleIndex ancestor) {
        ++stamp_;
        bool found = false;
        const auto visit = [&](const auto& self, ModuleIndex m) -> void {
            for (const ModuleIndex c : tree_.children(m)) {
                if (visited_[at(c)] != stamp_ && !found) {
                    visited_[at(c)] = stamp_;
                    found = c == candidate;
                    self(self, c);
                }
            }
        };
        visit(visit, ancestor);
        return found;
    }

    std::vector<ModuleIndex> without_descendants(const std::vector<ModuleIndex>& modules) {
        std::vector<ModuleIndex> roots;
        for (const ModuleIndex candidate : modules) {
            const bool below_another = std::ranges::any_of(
                modules, [&](ModuleIndex other) { return other != candidate && is_below(candidate, other); });
            if (!below_another) {
                roots.push_back(candidate);
            }
        }
        return roots;
    }

    // torch looks whether the class defines forward, which a module tree does not tell: lists rarely do.
    bool is_container(ModuleIndex m) const { return ClassSet(tree_, default_exclude()).matches(tree_, m); }

    std::vector<TensorIndex> ignored_by(const PolicySpec::Call& call) const {
        std::vector<TensorIndex> out;
        for (const std::string& path : call.ignored_parameters) {
            out.push_back(require_parameter(tree_, path, "fully_shard ignored_params"));
        }
        return out;
    }

    // Children before the module itself, not into modules with a state of their own.
    Managed collect(const std::vector<ModuleIndex>& modules, const std::vector<TensorIndex>& ignored) {
        Managed out;
        ++stamp_;
        const std::int32_t stamp = stamp_;
        for (const TensorIndex t : ignored) {
            seen_[at(t)] = -stamp;
        }
        const auto visit = [&](const auto& self, ModuleIndex m, bool is_given) -> void {
            if (!is_given && state_of_[at(m)] >= 0) {
                return;
            }
            visited_[at(m)] = stamp;
            for (const ModuleIndex c : tree_.children(m)) {
                if (visited_[at(c)] != stamp) {
                    self(self, c, std::ranges::find(modules, c) != modules.end());
                }
            }
            const std::int32_t begin = tree_.parameter_begin[at(m)];
            const std::span<const TensorIndex> parameters = tree_.parameters(m);
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                const TensorIndex t = parameters[i];
                if (resolved_.ignored(t) || seen_[at(t)] == -stamp) {
                    continue;
                }
                out.registrations.push_back(begin + static_cast<std::int32_t>(i));
                if (seen_[at(t)] != stamp) {
                    seen_[at(t)] = stamp;
                    out.tensors.push_back(t);
                }
            }
        };
        for (const ModuleIndex m : modules) {
            visit(visit, m, true);
        }
        return out;
    }

    bool acceptable(const Managed& managed, const Unit& unit) {
        for (const TensorIndex t : managed.tensors) {
            const Tensor& tensor = tree_.tensors[at(t)];
            if (tensor.uninitialized) {
                fail(WrapRule::uninitialized_parameter, "RuntimeError", unit.path, {first_name(t)},
                     "the lazy parameter \"" + first_name(t) +
                         "\" has no shape yet; run one forward pass first");
                return false;
            }
            if (tensor.shape.empty()) {
                fail(WrapRule::scalar_parameter, "ValueError", unit.path, {first_name(t)},
                     "\"" + first_name(t) +
                         "\" has no dimension; make it a tensor of one element, or ignore it",
                     // torch names it as its own module does
                     "fully_shard doesn't support scalar parameters. Change " + last_part(first_name(t)) +
                         " to a 1D tensor with numel equal to 1.");
                return false;
            }
        }
        for (const std::int32_t registration : managed.registrations) {
            if (sharded_[static_cast<std::size_t>(registration)] != 0) {
                const std::string name = first_name(tree_.parameter[static_cast<std::size_t>(registration)]);
                fail(WrapRule::already_sharded, "TypeError", unit.path, {name},
                     "\"" + name +
                         "\" is sharded by an earlier fully_shard call; call it on children before parents");
                return false;
            }
        }
        return true;
    }

    /// First path of a tensor in the model.
    std::string first_name(TensorIndex t) const {
        for (std::size_t m = 0; m < tree_.size(); ++m) {
            const ModuleIndex module{static_cast<std::int32_t>(m)};
            const std::span<const TensorIndex> parameters = tree_.parameters(module);
            const auto slot = std::ranges::find(parameters, t);
            if (slot != parameters.end()) {
                return join_path(
                    tree_.path(module),
                    tree_.parameter_names(module)[static_cast<std::size_t>(slot - parameters.begin())]);
            }
        }
        return "";
    }

    // A tied parameter lies where the post-order walk meets it but is named after the first module in
    // pre-order that registers it.
    std::vector<std::string> first_names(const std::vector<ModuleIndex>& modules, const Managed& managed) {
        std::vector<char> ours(tree_.parameter.size(), 0);
        for (const std::int32_t registration : managed.registrations) {
            ours[static_cast<std::size_t>(registration)] = 1;
        }
        std::vector<std::string> name_of(tree_.tensors.size());
        ++stamp_;
        const auto visit = [&](const auto& self, ModuleIndex m) -> void {
            if (visited_[at(m)] == stamp_) {
                return;
            }
            visited_[at(m)] = stamp_;
            const auto begin = static_cast<std::size_t>(tree_.parameter_begin[at(m)]);
            const std::span<const TensorIndex> parameters = tree_.parameters(m);
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                if (ours[begin + i] != 0 && name_of[at(parameters[i])].empty()) {
                    name_of[at(parameters[i])] = join_path(tree_.path(m), tree_.parameter_names(m)[i]);
                }
            }
            for (const ModuleIndex c : tree_.children(m)) {
                self(self, c);
            }
        };
        for (const ModuleIndex m : modules) {
            visit(visit, m);
        }
        std::vector<std::string> out;
        for (const TensorIndex t : managed.tensors) {
            out.push_back(name_of[at(t)]);
        }
        return out;
    }

    // FSDPState._lazy_init of the state that runs forward first: the last call's.
    void check_first_forward() {
        const Unit& root = plan_.units.back();
        const auto report = [&](WrapRule rule, const char* type, const Unit& unit,
                                std::vector<std::string> tensors, std::string message,
                                std::string error_text = {}) {
            plan_.diagnostics.push_back({.rule = rule,
                                         .severity = Severity::forward_error,
                                         .error_type = type,
                                         .unit = unit.path,
                                         .tensors = std::move(tensors),
                                         .message = std::move(message),
                                         .error_text = std::move(error_text)});
        };
        if (root.modules.size() > 1) {
            report(WrapRule::several_roots, "RuntimeError", root, {},
                   "the outermost fully_shard call covers several modules; call it once more on the model "
                   "itself");
            return;
        }
        std::vector<std::int32_t> owner(tree_.tensors.size(), -1);
        std::vector<char> state_seen(plan_.units.size(), 0);
        ++stamp_;
        const auto visit = [&](const auto& self, ModuleIndex m) -> void {
            if (visited_[at(m)] == stamp_) {
                return;
            }
            visited_[at(m)] = stamp_;
            const std::int32_t state = state_of_[at(m)];
            if (state >= 0 && state_seen[static_cast<std::size_t>(state)]++ == 0) {
                const Unit& unit = plan_.units[static_cast<std::size_t>(state)];
                for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
                    std::int32_t& first = owner[at(unit.parameters[i])];
                    if (first >= 0) {
                        report(WrapRule::tied_across_groups, "ValueError", unit, {unit.parameter_paths[i]},
                               "\"" + unit.parameter_paths[i] +
                                   "\" is tied and lies in two groups; put both modules " +
                                   "into one fully_shard([…]) call",
                               "Parameter '" + unit.parameter_paths[i] +
                                   "' is shared with a parameter already managed by another FSDP group.");
                    }
                    first = state;
                }
                check_trainable_dtypes(unit, report);
            }
            for (const ModuleIndex c : tree_.children(m)) {
                self(self, c);
            }
        };
        visit(visit, root.module);
    }

    template <typename Report>
    void check_trainable_dtypes(const Unit& unit, const Report& report) const {
        const Tensor* first = nullptr;
        for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
            const Tensor& tensor = tree_.tensors[at(unit.parameters[i])];
            if (!tensor.requires_grad) {
                continue;
            }
            if (first == nullptr) {
                first = &tensor;
            } else if (tensor.dtype != first->dtype) {
                report(WrapRule::mixed_dtype, "AssertionError", unit, {unit.parameter_paths[i]},
                       "trainable parameters of one group must share their dtype, but \"" +
                           unit.parameter_paths[i] + "\" is " + std::string(name(tensor.dtype)) + " beside " +
                           std::string(name(first->dtype)),
                       "FSDP expects uniform original parameter dtype but got");  // a set, in any order
                return;
            }
        }
    }

    const ModuleTree& tree_;
    const Resolved& resolved_;
    std::vector<std::int32_t> state_of_;  // per row: its fully_shard call, or -1
    std::vector<char> sharded_;           // per parameter registration: a sharded DTensor by now
    std::vector<std::int32_t> visited_;   // per row: stamp of the last walk
    std::vector<std::int32_t> seen_;      // per tensor: stamp, negative when this call ignores it
    std::int32_t stamp_ = 0;
    WrapPlan plan_;
    bool stopped_ = false;
};

}  // namespace

WrapPlan apply_fully_shard(const ModuleTree& tree, const PolicySpec& spec, const Resolved& resolved) {
    FullyShard model(tree, resolved);
    for (const PolicySpec::Call& call : spec.calls) {
        if (model.stopped()) {
            break;
        }
        model.call(call);
    }
    return model.finish();
}

}  // namespace fsdplan
