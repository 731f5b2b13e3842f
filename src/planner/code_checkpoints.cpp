#include "planner/code_checkpoints.hpp"

#include <algorithm>

#include "planner/code_words.hpp"

namespace fsdplan {
namespace {

using Mode = ActivationCheckpointing::Mode;
using Placement = ActivationCheckpointing::Placement;

constexpr std::string_view wrappers = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper";

// The policy of torchtitan: the first, third, … matrix product and attention are kept.
constexpr std::string_view selective_imports =
    "from functools import partial\n"
    "from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts\n";
constexpr std::string_view selective_function =
    "def selective():\n"
    "    products = {False: 0, True: 0}\n"
    "\n"
    "    def policy(context, op, *args, **kwargs):\n"
    "        products[context.is_recompute] += op is torch.ops.aten.mm.default\n"
    "        product = op is torch.ops.aten.mm.default and products[context.is_recompute] % 2 == 1\n"
    "        keep = product or \"_scaled_dot_product\" in op._schema.name\n"
    "        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE\n"
    "\n"
    "    return create_selective_checkpoint_contexts(policy)\n"
    "\n";

class Writer {
public:
    Writer(const ModuleTree& tree, const TrainingJob& job, bool is_fsdp1)
        : tree_(tree), how_(job.activation_checkpointing), is_fsdp1_(is_fsdp1) {}

    std::optional<CheckpointCode> write(const std::vector<std::string>& unit_paths) {
        std::vector<std::string> paths;
        for (const ModuleIndex m : how_.regions(tree_)) {
            paths.push_back(tree_.path(m));
        }
        if (paths.empty()) {
            return CheckpointCode{};
        }
        const bool around_units = std::ranges::all_of(paths, [&](const std::string& path) {
            return std::ranges::find(unit_paths, path) != unit_paths.end();
        });
        if (how_.placement == Placement::outside && !around_units) {
            return std::nullopt;
        }
        if (how_.mode == Mode::selective) {
            out_.imports += selective_imports;
            out_.definitions = selective_function;
        }
        if (!name_modules(paths)) {
            return std::nullopt;
        }
        if (how_.placement == Placement::forward) {
            by_model();
        } else {
            by_wrappers();
        }
        return std::move(out_);
    }

private:
    // Defines `checkpointed` where a class does not say it.
    bool name_modules(const std::vector<std::string>& paths) {
        by_class_ = how_.modules.empty() && (how_.mode == Mode::blocks || how_.mode == Mode::selective);
        if (by_class_) {
            return true;
        }
        const std::vector<std::string> lines = name_lines(paths);
        out_.before += "checkpointed = {model.get_submodule(name) for name in " + tuple_of(lines) + "}\n";
        return lines.size() <= most_lines;
    }

    void by_model() {
        out_.before +=
            "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": " +
            std::string(how_.reentrant ? "True" : "False") +
            (how_.mode == Mode::selective ? ", \"context_fn\": selective" : "") + "})\n";
        if (!by_class_) {
            out_.imports += "from transformers.modeling_layers import GradientCheckpointingLayer\n";
            out_.before +=
                "for module in model.modules():\n"
                "    if isinstance(module, GradientCheckpointingLayer):\n"
                "        module.gradient_checkpointing = module in checkpointed\n";
        }
    }

    void by_wrappers() {
        const bool outside = how_.placement == Placement::outside;
        // Wrappers made after FullyShardedDataParallel get below it, since the check is for the inner module.
        out_.wraps_before = !is_fsdp1_ && !outside;
        std::string& code = out_.wraps_before ? out_.before : out_.after;
        const std::string module = is_fsdp1_ && outside ? "getattr(m, \"_fsdp_wrapped_module\", None)" : "m";
        std::string check = module + " in checkpointed";
        if (by_class_) {
            check = "isinstance(" + module + ", (" + class_tuple(block_classes(tree_), out_.imports) + "))";
        }
        std::string wrapper;
        if (how_.mode == Mode::selective) {
            wrapper = "partial(checkpoint_wrapper, context_fn=selective)";
        } else if (how_.reentrant) {
            out_.imports += "from functools import partial\n";
            wrapper = "partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)";
        }
        out_.imports += "from " + std::string(wrappers) + " import apply_activation_checkpointing" +
                        (wrapper.empty() ? "" : ", checkpoint_wrapper") +
                        (how_.reentrant ? ", CheckpointImpl" : "") + "\n";
        code += "apply_activation_checkpointing(model, " +
                (wrapper.empty() ? "" : "checkpoint_wrapper_fn=" + wrapper + ", ") +
                "check_fn=lambda m: " + check + ")\n";
    }

    const ModuleTree& tree_;
    const ActivationCheckpointing& how_;
    bool is_fsdp1_;
    bool by_class_ = false;
    CheckpointCode out_;
};

}  // namespace

std::optional<CheckpointCode> checkpoint_code(const ModuleTree& tree, const TrainingJob& job, bool is_fsdp1,
                                              const std::vector<std::string>& unit_paths) {
    return Writer(tree, job, is_fsdp1).write(unit_paths);
}

}  // namespace fsdplan
