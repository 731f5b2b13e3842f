#include <algorithm>

#include "frontend/accelerate_checkpoints.hpp"
#include "frontend/python_value.hpp"
#include "frontend/regular_expression.hpp"

// Accelerator.prepare() of accelerate 1.15 for both versions of FSDP.
namespace fsdplan {
namespace {

using frontend::refuse;
using Wrap = AcceleratePlugin::Wrap;

ModuleIndex row(std::size_t m) {
    return ModuleIndex{static_cast<std::int32_t>(m)};
}

// Depth first: rows are in that order. Only a module's own class counts, in its exact letters.
std::string class_named(const ModuleTree& tree, const std::string& name) {
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const std::string& full = tree.class_info(row(m)).name;
        if (short_name(full) == name) {
            return full;
        }
    }
    std::vector<std::string> classes;
    for (const ModuleClass& c : tree.classes) {
        classes.emplace_back(short_name(c.name));
    }
    refuse(FrontendRule::class_absent, "ValueError", name,
           "no module of the model is a \"" + name + "\"" + did_you_mean(name, classes));
}

std::vector<std::string> matching_modules(const ModuleTree& tree, const std::string& expression) {
    const frontend::RegularExpression pattern(expression, "ignored_modules");
    std::vector<std::string> out;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        std::string path = tree.path(row(m));
        if (pattern.matches_all(path)) {
            out.push_back(std::move(path));
        }
    }
    return out;
}

std::vector<std::string> parameters_below(const ModuleTree& tree, const std::vector<std::string>& modules) {
    std::vector<char> taken(tree.tensors.size(), 0);
    std::vector<std::string> out;
    for (const std::string& path : modules) {
        const std::size_t begin = at(*tree.find(path));
        for (std::size_t m = begin; m < static_cast<std::size_t>(tree.subtree_end[begin]); ++m) {
            const std::span<const TensorIndex> parameters = tree.parameters(row(m));
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                if (taken[at(parameters[i])]++ == 0) {
                    out.push_back(join_path(tree.path(row(m)), tree.parameter_names(row(m))[i]));
                }
            }
        }
    }
    return out;
}

class Preparation {
public:
    Preparation(const ModuleTree& tree, const ModelHints& hints, const AcceleratePlugin& plugin)
        : tree_(tree), hints_(hints), plugin_(plugin) {}

    AcceleratedModel run(int world_size) {
        find_classes();
        out_.options.world_size = world_size;
        plugin_.version == 2 ? version_2() : version_1();
        return std::move(out_);
    }

private:
    void find_classes() {
        if (plugin_.wrap == Wrap::transformer) {
            for (const std::string& name : plugin_.classes.value_or(hints_.no_split_classes)) {
                classes_.push_back(class_named(tree_, name));
            }
        }
    }

    // A threshold of 0 or less is silently no policy.
    std::int64_t threshold() const {
        const auto* number = std::get_if<std::int64_t>(&plugin_.min_num_params);
        return number != nullptr ? *number : frontend::truth(plugin_.min_num_params) ? 1 : 0;
    }
    bool sizes_count() const { return plugin_.wrap == Wrap::size && threshold() > 0; }

    void version_1() {
        if (plugin_.wrap == Wrap::transformer) {
            out_.policy.kind = PolicySpec::Kind::recursive;
            out_.policy.members.push_back({.name = "transformer", .classes = classes_});
        } else if (sizes_count()) {
            out_.policy.kind = PolicySpec::Kind::recursive;
            out_.policy.members.push_back(
                {.name = "size", .min_num_params = static_cast<double>(threshold())});
        }
        out_.options.use_orig_params = plugin_.use_orig_params.value_or(false);
        if (plugin_.mixed_precision) {
            out_.options.mixed_precision = true;
            out_.options.param_dtype = plugin_.mixed_precision->param;
        }
        if (plugin_.ignored_modules) {
            out_.options.ignored_modules = matching_modules(tree_, *plugin_.ignored_modules);
        }
        if (plugin_.activation_checkpointing) {
            out_.checkpointed = frontend::checkpointed_after_sharding(tree_, out_.policy, out_.options);
        }
    }

    void version_2() {
        out_.policy.kind = PolicySpec::Kind::calls;
        if (plugin_.ignored_modules) {
            out_.options.ignored_parameters =
                parameters_below(tree_, matching_modules(tree_, *plugin_.ignored_modules));
        }
        if (plugin_.activation_checkpointing && plugin_.wrap != Wrap::transformer && !sizes_count()) {
            refuse(FrontendRule::checkpoint_without_policy, "TypeError", "activation_checkpointing",
                   "activation_checkpointing of version 2 needs a policy that wraps something");
        }
        called_.assign(tree_.size(), 0);
        seen_.assign(tree_.size(), 0);
        call_chosen(ModuleIndex{});
        if (plugin_.activation_checkpointing) {
            for (std::size_t m = 0; m < tree_.size(); ++m) {
                if (called_[m] != 0) {
                    out_.checkpointed.push_back(tree_.path(row(m)));
                }
            }
        }
        if (hints_.input_embeddings || !raises_for_embeddings()) {
            call_ends();
            return;
        }
        if (wrap(tree_, out_.policy, out_.options).construction_error() == nullptr) {
            refuse(FrontendRule::no_input_embeddings, "NotImplementedError",
                   std::string(short_name(tree_.class_info(ModuleIndex{}).name)),
                   "the model's get_input_embeddings() raises; define it in the model's class");
        }
    }

    // transformers' own method raises where it finds nothing; other models have no such method.
    bool raises_for_embeddings() const {
        const std::vector<std::string>& bases = tree_.class_info(ModuleIndex{}).bases;
        return std::ranges::find(bases, "transformers.modeling_utils.PreTrainedModel") != bases.end();
    }

    bool chosen(ModuleIndex m) const {
        return plugin_.wrap == Wrap::transformer ? ClassSet(tree_, classes_).matches(tree_, m)
                                                 : sizes_count() && tree_.numel[at(m)] > threshold();
    }

    void call_chosen(ModuleIndex m) {
        seen_[at(m)] = 1;
        for (const ModuleIndex c : tree_.children(m)) {
            if (seen_[at(c)] == 0) {
                call_chosen(c);
            }
        }
        if (m != ModuleIndex{} && chosen(m)) {
            call({tree_.path(m)}, configured());
        }
    }

    // Embedding, final norm and head have units of their own whatever the policy is.
    void call_ends() {
        const auto not_called = [&](const std::optional<std::string>& path) {
            const auto m = path ? tree_.find(*path) : std::nullopt;
            return m && called_[at(*m)] == 0;
        };
        if (!hints_.weights_tied && not_called(hints_.input_embeddings)) {
            call({*hints_.input_embeddings}, configured());
        }
        std::vector<std::string> tail;
        if (not_called(hints_.final_norm)) {
            tail.push_back(*hints_.final_norm);
        }
        if (hints_.weights_tied && not_called(hints_.input_embeddings)) {
            tail.push_back(*hints_.input_embeddings);
        }
        if (not_called(hints_.output_embeddings)) {
            tail.push_back(*hints_.output_embeddings);
        }
        if (!tail.empty()) {
            call(tail, false, true);
        }
        call({""}, std::nullopt);
    }

    bool configured() const { return frontend::truth(plugin_.reshard_after_forward); }

    void call(const std::vector<std::string>& modules, std::optional<bool> reshard, bool list = false) {
        PolicySpec::Call call{.modules = modules, .list = list, .ignored_parameters = {}};
        if (reshard) {
            call.arguments.emplace_back("reshard_after_forward", *reshard ? "true" : "false");
        }
        for (const std::string& path : modules) {
            called_[at(*tree_.find(path))] = 1;
        }
        out_.policy.calls.push_back(std::move(call));
    }

    const ModuleTree& tree_;
    const ModelHints& hints_;
    const AcceleratePlugin& plugin_;
    std::vector<std::string> classes_;  // full names
    std::vector<char> called_;
    std::vector<char> seen_;
    AcceleratedModel out_;
};

}  // namespace

OrRefused<AcceleratedModel> accelerate_prepare(const ModuleTree& tree, const ModelHints& hints,
                                               const AcceleratePlugin& plugin, int world_size) {
    return frontend::or_refused([&] { return Preparation(tree, hints, plugin).run(world_size); });
}

DType accelerate_stored(DType loaded, bool trainable, std::string_view mixed_precision) {
    return trainable && mixed_precision != "no" && is_floating_point(loaded) ? DType::float32 : loaded;
}

}  // namespace fsdplan
