#include "wrap/wrapped_model.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "model/count.hpp"
#include "wrap/flat_parameter.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_tensors_named = 12;

bool known_argument(std::string_view name) {
    constexpr std::array<std::string_view, 15> known{
        "process_group",    "sharding_strategy", "cpu_offload",     "auto_wrap_policy", "backward_prefetch",
        "mixed_precision",  "ignored_modules",   "param_init_fn",   "device_id",        "sync_module_states",
        "forward_prefetch", "limit_all_gathers", "use_orig_params", "ignored_states",   "device_mesh"};
    return std::ranges::find(known, name) != known.end();
}

std::string unit_in_words(const Unit& unit) {
    return unit.path.empty() ? "the root unit" : "the unit \"" + unit.path + "\"";
}

/// A parameter's path below the unit's module, as torch names it there.
std::string path_in(const Unit& unit, const std::string& parameter) {
    return unit.path.empty() ? parameter : parameter.substr(unit.path.size() + 1);
}

/// Whether torch's linear layer takes a shard of its weight for the weight: exactly one row of it, and no
/// bias to add.
bool takes_as_row(const ModuleTree& tree, ModuleIndex m, const Tensor& weight, std::int64_t piece) {
    const std::string linear = "torch.nn.modules.linear.Linear";
    return ClassSet(tree, std::span(&linear, 1)).matches(tree, m) && tree.parameters(m).size() == 1 &&
           weight.shape.size() == 2 && weight.shape.back() == piece;
}

}  // namespace

WrappedModel::WrappedModel(const ModuleTree& tree, const Resolved& resolved)
    : tree_(tree),
      resolved_(resolved),
      counts_are_static_(!tree.has_several_parents &&
                         (!tree.has_tied_parameters || !resolved.options->use_orig_params)),
      unit_in_slot_(tree.child.size(), -1),
      hidden_(tree.parameter.size(), 0),
      taken_numel_(tree.tensors.size(), -1),
      flat_piece_(tree.size(), 0),
      module_stamp_(tree.size(), 0),
      tensor_stamp_(tree.tensors.size(), 0) {
    if (counts_are_static_) {
        static_numel_ = subtree_numel(tree, resolved.ignored_tensor);
    }
}

std::int64_t WrappedModel::numel(ModuleIndex m) {
    return counts_are_static_ ? static_numel_[at(m)] : registered_numel(m);
}

// module.parameters(): every module and every parameter object once, units included.
std::int64_t WrappedModel::registered_numel(ModuleIndex m) {
    ++stamp_;
    std::int64_t total = 0;
    std::vector<ModuleIndex> stack{m};
    module_stamp_[at(m)] = stamp_;
    while (!stack.empty()) {
        const ModuleIndex top = stack.back();
        stack.pop_back();
        total += flat_piece_[at(top)];
        const auto begin = static_cast<std::size_t>(tree_.parameter_begin[at(top)]);
        const std::span<const TensorIndex> parameters = tree_.parameters(top);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const TensorIndex t = parameters[i];
            if (hidden_[begin + i] != 0 || resolved_.ignored(t) || tensor_stamp_[at(t)] == stamp_) {
                continue;
            }
            tensor_stamp_[at(t)] = stamp_;
            total += taken_numel_[at(t)] >= 0 ? taken_numel_[at(t)] : tree_.tensors[at(t)].numel;
        }
        for (const ModuleIndex c : tree_.children(top)) {
            if (module_stamp_[at(c)] != stamp_) {
                module_stamp_[at(c)] = stamp_;
                stack.push_back(c);
            }
        }
    }
    return total;
}

bool WrappedModel::has_unit_below(ModuleIndex m) {
    ++stamp_;
    std::vector<ModuleIndex> stack{m};
    module_stamp_[at(m)] = stamp_;
    while (!stack.empty()) {
        const ModuleIndex top = stack.back();
        stack.pop_back();
        for (std::int32_t slot = tree_.child_begin[at(top)]; slot < tree_.child_begin[at(top) + 1]; ++slot) {
            if (is_unit(slot)) {
                return true;
            }
            const ModuleIndex c = tree_.child[static_cast<std::size_t>(slot)];
            if (module_stamp_[at(c)] != stamp_) {
                module_stamp_[at(c)] = stamp_;
                stack.push_back(c);
            }
        }
    }
    return false;
}

bool WrappedModel::stop_at_uninitialized(ModuleIndex m, const char* error_type) {
    if (!tree_.has_uninitialized) {
        return false;
    }
    const Managed managed = collect(m);
    for (std::size_t i = 0; i < managed.tensors.size(); ++i) {
        if (tree_.tensors[at(managed.tensors[i])].uninitialized) {
            const std::string path = tree_.path(m);
            const std::string tensor = join_path(path, managed.paths[i]);
            report({.rule = WrapRule::uninitialized_parameter,
                    .severity = Severity::error,
                    .error_type = error_type,
                    .unit = path,
                    .tensors = {tensor},
                    .message = "the lazy parameter \"" + tensor +
                               "\" has no shape yet; run one forward pass before sharding, or ignore it"});
            stop();
            return true;
        }
    }
    return false;
}

// Pre-order over module objects. Slots that hold a unit are passed by: what they lead to is taken already.
WrappedModel::Managed WrappedModel::collect(ModuleIndex m) {
    Managed out;
    ++stamp_;
    const auto visit = [&](const auto& self, ModuleIndex module, const std::string& path) -> void {
        if (module_stamp_[at(module)] == stamp_) {
            return;
        }
        module_stamp_[at(module)] = stamp_;
        const auto begin = static_cast<std::size_t>(tree_.parameter_begin[at(module)]);
        const std::span<const TensorIndex> parameters = tree_.parameters(module);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const TensorIndex t = parameters[i];
            if (hidden_[begin + i] != 0 || resolved_.ignored(t) || taken_numel_[at(t)] >= 0) {
                continue;
            }
            out.registrations.push_back(static_cast<std::int32_t>(begin + i));
            if (tensor_stamp_[at(t)] != stamp_) {  // the first registration names the parameter
                tensor_stamp_[at(t)] = stamp_;
                out.tensors.push_back(t);
                out.paths.push_back(join_path(path, tree_.parameter_names(module)[i]));
            }
        }
        for (std::int32_t slot = tree_.child_begin[at(module)]; slot < tree_.child_begin[at(module) + 1];
             ++slot) {
            if (!is_unit(slot)) {
                const auto s = static_cast<std::size_t>(slot);
                self(self, tree_.child[s], join_path(path, tree_.child_name[s]));
            }
        }
    };
    visit(visit, m, "");
    return out;
}

Diagnostic WrappedModel::diagnostic(WrapRule rule, Severity severity, std::string type,
                                    const Unit& unit) const {
    return {.rule = rule, .severity = severity, .error_type = std::move(type), .unit = unit.path};
}

// What _verify_managed_params and FlatParamHandle refuse, in their order.
void WrappedModel::check(const Unit& unit, bool use_orig_params) {
    const auto fail = [&](WrapRule rule, const char* type, std::vector<std::string> tensors,
                          std::string message, std::string error_text = {}) {
        Diagnostic d = diagnostic(rule, Severity::error, type, unit);
        if (tensors.size() > most_tensors_named) {
            tensors.resize(most_tensors_named);
        }
        d.tensors = std::move(tensors);
        d.message = std::move(message);
        d.error_text = std::move(error_text);
        report(std::move(d));
    };
    const auto tensor = [&](std::size_t i) -> const Tensor& { return tree_.tensors[at(unit.parameters[i])]; };
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
        if (tensor(i).uninitialized) {
            fail(WrapRule::uninitialized_parameter, "RuntimeError", {unit.parameter_paths[i]},
                 unit_in_words(unit) +
                     " holds a lazy parameter without a shape; run one forward pass before sharding");
            stop();
            return;
        }
        if (tensor(i).shape.empty()) {
            fail(WrapRule::scalar_parameter, "ValueError", {unit.parameter_paths[i]},
                 "\"" + unit.parameter_paths[i] +
                     "\" has no dimension; make it a tensor of one element, or ignore it",
                 "FSDP doesn't support scalar parameters. Change " + path_in(unit, unit.parameter_paths[i]) +
                     " to a 1D tensor with numel equal to 1.");
            return;
        }
    }
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
        if (i == 0 && !is_floating_point(tensor(0).dtype)) {
            fail(WrapRule::integer_parameter, "ValueError", {unit.parameter_paths[0]},
                 unit_in_words(unit) + " begins with " + std::string(name(tensor(0).dtype)) + " \"" +
                     unit.parameter_paths[0] + "\"; a flat parameter needs a floating dtype, so ignore it");
            return;
        }
        if (tensor(i).dtype != tensor(0).dtype) {
            std::vector<std::string> odd;
            for (std::size_t k = i; k < unit.parameters.size(); ++k) {
                if (tensor(k).dtype != tensor(0).dtype) {
                    odd.push_back(unit.parameter_paths[k]);
                }
            }
            const std::string count = std::to_string(odd.size());
            fail(WrapRule::mixed_dtype, "ValueError", std::move(odd),
                 unit_in_words(unit) + " mixes " + std::string(name(tensor(0).dtype)) + " with " + count +
                     (count == "1" ? " parameter" : " parameters") + " of another dtype (the first is " +
                     std::string(name(tensor(i).dtype)) + " \"" + unit.parameter_paths[i] +
                     "\"); cast them, or wrap or ignore their modules",
                 "Must flatten tensors with uniform dtype but got torch." +
                     std::string(name(tensor(0).dtype)) + " and torch." + std::string(name(tensor(i).dtype)));
            return;
        }
        if (!use_orig_params && tensor(i).requires_grad != tensor(0).requires_grad) {
            std::vector<std::string> odd;
            for (std::size_t k = i; k < unit.parameters.size(); ++k) {
                if (tensor(k).requires_grad != tensor(0).requires_grad) {
                    odd.push_back(unit.parameter_paths[k]);
                }
            }
            fail(WrapRule::mixed_requires_grad, "ValueError", std::move(odd),
                 unit_in_words(unit) + " mixes frozen and trainable parameters (\"" +
                     unit.parameter_paths[0] + "\" and \"" + unit.parameter_paths[i] +
                     "\"); set use_orig_params=True, or wrap the trainable modules on their own first",
                 "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`");
            return;
        }
    }
    if (unit.numel == 0) {
        fail(WrapRule::empty_flat_parameter, "AssertionError", unit.parameter_paths,
             "all parameters of " + unit_in_words(unit) + " have zero elements; do not wrap it alone");
    }
}

// The flat parameter has one gradient: frozen members get theirs as well.
void WrappedModel::warn_of_frozen(const Unit& unit) {
    std::int64_t trainable = 0;
    for (const TensorIndex t : unit.parameters) {
        trainable += tree_.tensors[at(t)].requires_grad ? tree_.tensors[at(t)].numel : 0;
    }
    if (trainable == 0 || trainable == unit.numel) {
        return;
    }
    Diagnostic d = diagnostic(WrapRule::frozen_with_trainable, Severity::warning, "", unit);
    d.message = unit_in_words(unit) + " holds a gradient of " + std::to_string(unit.numel) +
                " elements for " + std::to_string(trainable) +
                " trainable ones; wrap the trainable modules on their own";
    report(std::move(d));
}

void WrappedModel::flatten_parameters(Unit& unit, const Managed& managed, bool use_orig_params) {
    const WrapOptions& options = *resolved_.options;
    const bool full_precision = find_argument(unit.arguments, "mixed_precision") != nullptr;
    DType compute = tree_.tensors[at(unit.parameters.front())].dtype;
    if (options.mixed_precision && options.param_dtype && !full_precision) {
        compute = *options.param_dtype;
    }
    std::vector<std::int64_t> numels;
    numels.reserve(unit.parameters.size());
    for (const TensorIndex t : unit.parameters) {
        numels.push_back(tree_.tensors[at(t)].numel);
    }
    const FlatLayout layout = flat_layout(numels, use_orig_params, compute, options.world_size);
    unit.flat_numel = layout.numel;
    const std::string* strategy = find_argument(unit.arguments, "sharding_strategy");
    const bool sharded = options.world_size > 1 && (strategy == nullptr || *strategy != "\"NO_SHARD\"");
    unit.shard_numel = sharded ? ceil_div(layout.numel, options.world_size) : layout.numel;
    if (use_orig_params) {
        for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
            taken_numel_[at(unit.parameters[i])] =
                sharded ? local_numel(layout.offsets[i], numels[i], unit.shard_numel, options.rank)
                        : numels[i];
        }
    } else {
        for (const std::int32_t registration : managed.registrations) {
            hidden_[static_cast<std::size_t>(registration)] = 1;
        }
        flat_piece_[at(unit.module)] = unit.shard_numel;
    }
}

void WrappedModel::construct(const Request& request) {
    Unit unit;
    unit.module = request.module;
    unit.modules = {request.module};
    unit.arguments = request.arguments;
    if (request.slot != root_slot) {
        unit.path =
            join_path(tree_.path(request.parent), tree_.child_name[static_cast<std::size_t>(request.slot)]);
    }
    for (const auto& [argument, value] : unit.arguments) {
        if (!known_argument(argument) || argument == "ignored_modules") {
            const bool known = known_argument(argument);
            Diagnostic d = diagnostic(known ? WrapRule::ignored_both : WrapRule::unknown_unit_argument,
                                      Severity::error, known ? "ValueError" : "TypeError", unit);
            d.message =
                known ? "ignored_modules cannot be given to one unit: the root's ignored states come with it"
                      : "FSDP has no argument \"" + argument + '"';
            report(std::move(d));
        }
    }
    bool use_orig_params = resolved_.options->use_orig_params;
    if (const std::string* own = find_argument(unit.arguments, "use_orig_params")) {
        use_orig_params = *own == "true";
    }
    Managed managed = collect(request.module);
    unit.parameters = std::move(managed.tensors);
    unit.requires_grad = false;
    for (const TensorIndex t : unit.parameters) {
        unit.numel += tree_.tensors[at(t)].numel;
        unit.requires_grad = unit.requires_grad || tree_.tensors[at(t)].requires_grad;
    }
    unit.parameter_paths.reserve(managed.paths.size());
    for (const std::string& path : managed.paths) {
        unit.parameter_paths.push_back(join_path(unit.path, path));
    }
    if (!unit.parameters.empty()) {
        const std::size_t before = plan_.diagnostics.size();
        check(unit, use_orig_params);
        if (!counts_are_static_ && plan_.diagnostics.size() > before) {
            stop();  // later counts would depend on what PyTorch never got to
            return;
        }
        flatten_parameters(unit, managed, use_orig_params);
        if (use_orig_params) {
            warn_of_frozen(unit);
        }
    }
    if (request.slot != root_slot) {
        unit_in_slot_[static_cast<std::size_t>(request.slot)] = static_cast<std::int32_t>(units_.size());
    }
    slot_of_unit_.push_back(request.slot);
    units_.push_back(std::move(unit));
}

// FSDP.fsdp_modules(): the root first, then pre-order of the wrapped model.
void WrappedModel::order_units() {
    std::vector<std::int32_t> order;
    const bool has_root = !slot_of_unit_.empty() && slot_of_unit_.back() == root_slot;
    if (has_root) {
        order.push_back(static_cast<std::int32_t>(units_.size() - 1));
    }
    std::vector<char> seen(tree_.size(), 0);
    const auto visit = [&](const auto& self, ModuleIndex m) -> void {
        seen[at(m)] = 1;
        for (std::int32_t slot = tree_.child_begin[at(m)]; slot < tree_.child_begin[at(m) + 1]; ++slot) {
            if (is_unit(slot)) {
                order.push_back(unit_in_slot_[static_cast<std::size_t>(slot)]);
            }
            const ModuleIndex c = tree_.child[static_cast<std::size_t>(slot)];
            if (seen[at(c)] == 0) {
                self(self, c);
            }
        }
    };
    visit(visit, ModuleIndex{});
    plan_.construction_order.assign(units_.size(), 0);
    plan_.units.reserve(units_.size());
    for (const std::int32_t constructed : order) {
        plan_.construction_order[static_cast<std::size_t>(constructed)] =
            static_cast<std::int32_t>(plan_.units.size());
        plan_.units.push_back(std::move(units_[static_cast<std::size_t>(constructed)]));
    }
}

// A tied parameter that two units see: PyTorch says nothing, and the training is wrong.
void WrappedModel::report_ties() {
    if (!tree_.has_tied_parameters) {
        return;
    }
    std::vector<std::int32_t> manager(tree_.tensors.size(), -1);
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
        const Unit& unit = plan_.units[u];
        for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
            std::int32_t& first = manager[at(unit.parameters[i])];
            if (first >= 0) {
                const Unit& other = plan_.units[static_cast<std::size_t>(first)];
                const auto same = std::ranges::find(other.parameters, unit.parameters[i]);
                const std::string& name_there =
                    other.parameter_paths[static_cast<std::size_t>(same - other.parameters.begin())];
                Diagnostic d = diagnostic(WrapRule::tie_broken, Severity::warning, "", unit);
                d.tensors = {name_there, unit.parameter_paths[i]};
                d.message =
                    "the tied weight \"" + name_there + "\" = \"" + unit.parameter_paths[i] +
                    "\" lies in two units and silently becomes two weights; keep both modules in one unit";
                report(std::move(d));
            }
            first = static_cast<std::int32_t>(u);
        }
    }
    if (!resolved_.options->use_orig_params) {
        return;
    }
    // With original parameters the second owner keeps the same object, which holds a shard from now on.
    std::vector<std::int32_t> unit_of_module(tree_.size(), -1);
    const auto paint = [&](const auto& self, ModuleIndex m, std::int32_t unit) -> void {
        unit_of_module[at(m)] = unit;
        for (std::int32_t slot = tree_.child_begin[at(m)]; slot < tree_.child_begin[at(m) + 1]; ++slot) {
            const ModuleIndex c = tree_.child[static_cast<std::size_t>(slot)];
            if (unit_of_module[at(c)] < 0) {
                const std::int32_t constructed = unit_in_slot_[static_cast<std::size_t>(slot)];
                self(
                    self, c,
                    constructed < 0 ? unit : plan_.construction_order[static_cast<std::size_t>(constructed)]);
            }
        }
    };
    paint(paint, ModuleIndex{}, 0);
    for (std::size_t m = 0; m < tree_.size(); ++m) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        const std::span<const TensorIndex> parameters = tree_.parameters(module);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const std::int32_t owner = manager[at(parameters[i])];
            if (owner < 0 || owner == unit_of_module[m] || resolved_.options->world_size == 1) {
                continue;
            }
            const Unit& unit = plan_.units[static_cast<std::size_t>(owner)];
            const auto same = std::ranges::find(unit.parameters, parameters[i]);
            const std::string& there =
                unit.parameter_paths[static_cast<std::size_t>(same - unit.parameters.begin())];
            const std::string here = join_path(tree_.path(module), tree_.parameter_names(module)[i]);
            const bool unnoticed = takes_as_row(tree_, module, tree_.tensors[at(parameters[i])],
                                                taken_numel_[at(parameters[i])]);
            Diagnostic d = diagnostic(
                WrapRule::tied_across_units, unnoticed ? Severity::warning : Severity::forward_error,
                unnoticed ? "" : "RuntimeError", plan_.units[static_cast<std::size_t>(unit_of_module[m])]);
            d.tensors = {there, here};
            d.message = "\"" + here + "\" is tied to \"" + there + "\" of " + unit_in_words(unit) +
                        " and sees its shard in forward" +
                        (unnoticed ? ", one row that passes for the weight, so that results are wrong" : "") +
                        "; keep both modules in one unit";
            report(std::move(d));
        }
    }
}

void WrappedModel::report_shared_slots() {
    if (!tree_.has_shared_modules) {
        return;
    }
    for (std::size_t slot = 0; slot < tree_.child.size(); ++slot) {
        if (unit_in_slot_[slot] >= 0) {
            continue;
        }
        const auto wrapped = std::ranges::find_if(plan_.units, [&](const Unit& unit) {
            return !unit.path.empty() && unit.module == tree_.child[slot];
        });
        if (wrapped != plan_.units.end()) {
            Diagnostic d = diagnostic(WrapRule::not_called_through_unit, Severity::warning, "", *wrapped);
            d.message = "the shared module \"" + wrapped->path + "\" also hangs under the name \"" +
                        tree_.child_name[slot] + "\", where calls bypass the unit and find sharded weights";
            report(std::move(d));
        }
    }
}

WrapPlan WrappedModel::finish() {
    order_units();
    plan_.complete = !stopped_;
    if (!stopped_) {
        report_ties();
        report_shared_slots();
    }
    return std::move(plan_);
}

}  // namespace fsdplan
