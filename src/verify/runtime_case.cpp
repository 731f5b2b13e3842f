#include "verify/runtime_case.hpp"

#include <algorithm>

#include "verify/traffic.hpp"

namespace fsdplan {
namespace {

/// Whether a path matches a pattern in which `*` stands for (a part of) one name.
bool matches(std::string_view pattern, std::string_view path) {
    while (true) {
        const std::size_t a = pattern.find('.');
        const std::size_t b = path.find('.');
        if (!glob_matches(pattern.substr(0, a), path.substr(0, b))) {
            return false;
        }
        if (a == std::string_view::npos || b == std::string_view::npos) {
            return a == b;
        }
        pattern.remove_prefix(a + 1);
        path.remove_prefix(b + 1);
    }
}

/// Paths that match one of the patterns, children before parents.
class Matching {
public:
    Matching(const ModuleTree& tree, std::vector<std::string> patterns)
        : tree_(tree), patterns_(std::move(patterns)), seen_(tree.size(), 0) {
        visit(ModuleIndex{}, "");
    }
    std::vector<std::string> paths;

private:
    void visit(ModuleIndex m, const std::string& path) {
        if (seen_[at(m)] != 0) {
            return;
        }
        seen_[at(m)] = 1;
        for (std::size_t i = 0; i < tree_.children(m).size(); ++i) {
            visit(tree_.children(m)[i], join_path(path, tree_.child_names(m)[i]));
        }
        if (!path.empty() &&
            std::ranges::any_of(patterns_, [&](const std::string& p) { return matches(p, path); })) {
            paths.push_back(path);
        }
    }

    const ModuleTree& tree_;
    std::vector<std::string> patterns_;
    std::vector<char> seen_;
};

class Reader {
public:
    Reader(const json::Value& recorded_case, const ModuleTree& tree) : case_(recorded_case), tree_(tree) {}

    RuntimeCase read(const RecordedRun& run) {
        is_fsdp1_ = run.runtime == "fsdp1";
        out_.job.runtime = run.runtime;
        out_.job.torch = run.torch;
        read_mesh(run.world);
        read_precision();
        read_training();
        if (is_fsdp1_) {
            read_fsdp1();
        } else {
            read_fsdp2();
        }
        wrap_units();
        return std::move(out_);
    }

private:
    bool flag(std::string_view key, bool otherwise) const {
        const auto value = case_.given(key);
        return value ? value->boolean() : otherwise;
    }

    void read_mesh(std::int64_t world) {
        out_.job.mesh = {.replicate = 1, .shard = world};
        has_mesh_ = case_.find("mesh").has_value();
        if (has_mesh_) {
            std::vector<std::int64_t> sizes;
            for (const json::Value size : case_.at("mesh").elements()) {
                sizes.push_back(size.integer(1, world));
            }
            if (sizes.size() != 2) {
                case_.at("mesh").fail("[replicate, shard]");
            }
            out_.job.mesh = {.replicate = sizes[0], .shard = sizes[1]};
        }
    }

    void read_precision() {
        out_.job.param_dtype.reset();
        const auto mp = case_.given("mp");
        if (!mp) {
            return;
        }
        const auto dtype = [&](std::string_view key) -> std::optional<DType> {
            const auto value = mp->given(key);
            return value ? std::optional(recorded_dtype(*value)) : std::nullopt;
        };
        out_.job.param_dtype = dtype("param_dtype");
        out_.job.reduce_dtype = dtype("reduce_dtype");
        out_.job.buffer_dtype = dtype("buffer_dtype");
        if (const auto keep = mp->find("keep_low_precision_grads")) {
            out_.job.fsdp1.keep_low_precision_gradients = keep->boolean();
        }
    }

    void read_training() {
        if (const auto accum = case_.find("accum")) {
            out_.job.accumulate = accum->at("n").integer(1, 1 << 16U);
            const std::string_view mode = accum->at("mode").string();
            out_.job.no_sync = mode == "no_sync";
            out_.job.fsdp2.no_all_reduce = mode == "no_all_reduce";
            const auto set = [&](std::string_view key) {
                const auto value = accum->find(key);
                return value && value->boolean();
            };
            out_.job.fsdp2.keep_unsharded = set("keep_unsharded");
            out_.job.fsdp2.not_last_backward = set("last_backward");
        }
        if (const auto ac = case_.given("ac")) {
            read_checkpointing(*ac);
        }
        if (flag("clip", false)) {
            out_.job.clip_norm = 2.0;
        }
        out_.job.offload = flag("cpu_offload", false);
        out_.job.loss_in_model = flag("loss_in_model", false);
        const auto optim = case_.find("optim");
        out_.job.optimizer = {.kind = optim && optim->string() == "sgd" ? "sgd" : "adamw",
                              .implementation = Optimizer::Implementation::for_loop};
    }

    void read_checkpointing(const json::Value& ac) {
        using Placement = ActivationCheckpointing::Placement;
        ActivationCheckpointing& out = out_.job.activation_checkpointing;
        const std::string_view mode = ac.at("mode").string();
        out.placement = mode == "inside"    ? Placement::inside
                        : mode == "outside" ? Placement::outside
                                            : Placement::forward;
        const auto reentrant = ac.find("reentrant");
        out.reentrant = reentrant && reentrant->boolean();
        if (const auto modules = ac.find("modules")) {
            out.modules = Matching(tree_, modules->strings()).paths;
        } else {
            out.mode = ActivationCheckpointing::Mode::blocks;
        }
    }

    void read_fsdp1() {
        TrainingJob& job = out_.job;
        const auto strategy = case_.find("strategy");
        job.strategy = strategy ? parse_strategy(strategy->string()) : Strategy::full_shard;
        if (!is_hybrid(job.strategy)) {
            job.mesh = {.replicate = 1, .shard = job.mesh.ranks()};
        }
        job.use_orig_params = flag("use_orig_params", true);
        const auto prefetch = case_.find("backward_prefetch");
        job.backward_prefetch = !prefetch             ? BackwardPrefetch::pre
                                : prefetch->is_null() ? BackwardPrefetch::none
                                                      : parse_backward_prefetch(prefetch->string());
        job.forward_prefetch = flag("forward_prefetch", false);
        job.limit_all_gathers = flag("limit_all_gathers", true);
        job.fsdp1.debug_detail = flag("debug_detail", false);
    }

    void read_fsdp2() {
        TrainingJob& job = out_.job;
        job.strategy = has_mesh_ ? Strategy::hybrid_shard : Strategy::full_shard;
        job.fsdp2.unshard_async_op = flag("unshard_async_op", false);
        job.fsdp2.force_sum_reduction = flag("force_sum", false);
        job.fsdp2.reduce_scatter_unused_params = flag("reduce_scatter_unused_params", false);
        if (const auto factor = case_.find("gradient_divide_factor")) {
            job.fsdp2.gradient_divide_factor = factor->number();
        }
        if (const auto buffers = case_.find("reduce_scatter_max_input_buffers")) {
            job.fsdp2.reduce_scatter_max_input_buffers = buffers->integer(1, 1 << 16U);
        }
        if (const auto dim = case_.find("shard_dim")) {
            job.fsdp2.shard_dim = dim->integer(0, 16);
        }
        if (const auto none = case_.find("no_unshard_in_backward")) {
            job.fsdp2.no_unshard_in_backward = none->strings();
        }
    }

    void wrap_units() {
        std::vector<std::string> names;
        if (const auto wrap = case_.find("wrap")) {
            names = Matching(tree_, wrap->strings()).paths;
        }
        PolicySpec spec;
        spec.kind = is_fsdp1_ ? PolicySpec::Kind::manual : PolicySpec::Kind::calls;
        std::vector<std::vector<std::string>> groups;
        if (const auto grouped = case_.find("grouped")) {
            for (const json::Value group : grouped->elements()) {
                groups.push_back(group.strings());
            }
        }
        // A group is called in the place of the last of its modules.
        std::vector<std::size_t> left;
        for (const std::vector<std::string>& group : groups) {
            left.push_back(group.size());
        }
        for (const std::string& name : names) {
            const auto group = std::ranges::find_if(groups, [&](const auto& modules) {
                return std::ranges::find(modules, name) != modules.end();
            });
            if (group == groups.end()) {
                spec.calls.push_back({.modules = {name}});
            } else if (--left[static_cast<std::size_t>(group - groups.begin())] == 0) {
                spec.calls.push_back({.modules = *group, .list = true});
            }
        }
        if (!is_fsdp1_) {
            spec.calls.push_back({.modules = {""}});
        }
        out_.plan = wrap(tree_, spec, wrap_options(out_.job));
        for (Unit& unit : out_.plan.units) {
            override_arguments(unit);
        }
        if (!is_fsdp1_) {
            list_prefetches(names);
        }
    }

    void override_arguments(Unit& unit) const {
        if (const auto by_unit = case_.find("strategy_by_unit")) {
            if (const auto strategy = by_unit->find(unit.path)) {
                unit.arguments.emplace_back("sharding_strategy", json::quote(strategy->string()));
            }
        }
        if (is_fsdp1_) {
            return;
        }
        const auto reshard = [&](const json::Value& value) {
            if (!value.is_null()) {
                unit.arguments.emplace_back("reshard_after_forward",
                                            value.is_boolean() ? (value.boolean() ? "true" : "false")
                                                               : std::to_string(value.integer()));
            }
        };
        const bool is_root = unit.path.empty();
        const auto by_unit = case_.find("reshard_by_unit");
        const auto own = by_unit ? by_unit->find(unit_name(unit)) : std::nullopt;
        const auto root = case_.find("root_reshard_after_forward");
        if (own) {
            reshard(*own);
        } else if (is_root && root) {
            reshard(*root);
        } else if (const auto all = case_.find("reshard_after_forward")) {
            reshard(*all);
        }
        if (const auto mp = case_.find("root_mp"); mp && is_root) {
            for (const std::string_view key : {"param_dtype", "reduce_dtype"}) {
                if (const auto value = mp->find(key)) {
                    unit.arguments.emplace_back(key, json::quote(name(recorded_dtype(*value))));
                }
            }
        }
    }

    // Unit i has the next n units as explicit targets, or the n before it.
    void list_prefetches(const std::vector<std::string>& wrapped) {
        const auto recorded_order = case_.find("unit_order");
        const std::vector<std::string> order = recorded_order ? recorded_order->strings() : wrapped;
        const auto lists = [](const std::vector<std::string>& names, std::size_t n) {
            Fsdp2Options::PrefetchLists out;
            for (std::size_t i = 0; i + 1 < names.size(); ++i) {
                const auto first = names.begin() + static_cast<std::ptrdiff_t>(i) + 1;
                const auto last =
                    names.begin() + static_cast<std::ptrdiff_t>(std::min(i + 1 + n, names.size()));
                out.emplace_back(names[i], std::vector<std::string>(first, last));
            }
            return out;
        };
        if (const auto n = case_.find("forward_prefetch_n")) {
            out_.job.fsdp2.forward_prefetch = lists(order, static_cast<std::size_t>(n->integer(0, 1 << 16U)));
            if (flag("root_forward_prefetch", false) && !order.empty()) {
                out_.job.fsdp2.forward_prefetch.emplace_back("", std::vector{order.front()});
            }
        }
        if (const auto n = case_.find("backward_prefetch_n")) {
            out_.job.fsdp2.backward_prefetch =
                lists({order.rbegin(), order.rend()}, static_cast<std::size_t>(n->integer(0, 1 << 16U)));
        }
        if (const auto rows = case_.find("forward_prefetch_lists")) {
            out_.job.fsdp2.forward_prefetch = listed(*rows);
        }
        if (const auto rows = case_.find("backward_prefetch_lists")) {
            out_.job.fsdp2.backward_prefetch = listed(*rows);
        }
    }

    static Fsdp2Options::PrefetchLists listed(const json::Value& rows) {
        Fsdp2Options::PrefetchLists out;
        for (const json::Value targets : rows.members()) {
            out.emplace_back(targets.key(), targets.strings());
        }
        return out;
    }

    /// As recordings name units: the paths of a fully_shard list in the order of the tree, joined by commas.
    std::string unit_name(const Unit& unit) const {
        std::string joined;
        for (std::size_t m = 0; m < tree_.size() && unit.modules.size() > 1; ++m) {
            const auto module = static_cast<ModuleIndex>(m);
            if (std::ranges::find(unit.modules, module) != unit.modules.end()) {
                joined += (joined.empty() ? "" : ",") + tree_.path(module);
            }
        }
        return unit.modules.size() > 1 ? joined : unit.path;
    }

    json::Value case_;
    const ModuleTree& tree_;
    RuntimeCase out_;
    bool is_fsdp1_ = true;
    bool has_mesh_ = false;
};

}  // namespace

RuntimeCase runtime_case(const json::Value& recorded_case, const ModuleTree& tree, const RecordedRun& run) {
    return Reader(recorded_case, tree).read(run);
}

}  // namespace fsdplan
