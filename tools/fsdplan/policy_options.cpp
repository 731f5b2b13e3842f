#include "policy_options.hpp"

#include <algorithm>

#include "arguments.hpp"

namespace fsdplan::cli {
namespace {

std::string policy_help() {
    std::string help =
        "where the boundaries fall: none, blocks, class:CLASS[,CLASS…] (ModuleWrapPolicy), rules:FILE "
        "(CustomPolicy), calls:FILE (wrap or fully_shard calls)";
    for (const PolicyInfo* info : builtin::policies()) {
        help += ", " + std::string(info->syntax);
    }
    return help + "; the last ones are or-ed when repeated";
}

void name_paths(const ModuleTree& tree, const std::string& glob, WrapOptions& options) {
    bool found = false;
    for (std::size_t m = 1; m < tree.size(); ++m) {
        std::string path = tree.path(ModuleIndex{static_cast<std::int32_t>(m)});
        if (glob_matches(glob, path)) {
            options.ignored_modules.push_back(std::move(path));
            found = true;
        }
    }
    for (std::size_t m = 0; m < tree.size() && !found; ++m) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        const std::string path = tree.path(module);
        for (const std::string& name : tree.parameter_names(module)) {
            std::string full = path.empty() ? name : path + "." + name;
            if (glob_matches(glob, full)) {
                options.ignored_parameters.push_back(std::move(full));
            }
        }
    }
    if (!found && options.ignored_parameters.empty()) {
        throw Error(ErrorKind::input, "--ignore",
                    "\"" + glob + "\" matches no module and no parameter of this model");
    }
}

}  // namespace

void PolicyOptions::declare(Arguments& arguments) {
    arguments.option("--policy", policies, policy_help(), "POLICY");
    arguments.option("--force-leaf", force_leaf, "classes that size: does not enter (MultiheadAttention)",
                     "CLASS");
    arguments.option("--exclude", exclude, "classes that size: does not wrap (ModuleList, ModuleDict)",
                     "CLASS");
    arguments.option("--ignore", ignore, "modules (else parameters) that stay outside sharding", "GLOB");
    arguments.option("--runtime", runtime,
                     "fsdp1 or fsdp2; fsdp2 unless a size: or rules: policy is asked for", "RUNTIME");
    arguments.flag("--use-orig-params", use_orig_params, "FSDP1 keeps the original parameters");
}

bool PolicyOptions::is_fsdp2() const {
    const std::vector<std::string> known{"fsdp1", "fsdp2"};
    if (!runtime.empty() && std::ranges::find(known, runtime) == known.end()) {
        throw Error(ErrorKind::input, "--runtime",
                    "expected fsdp1 or fsdp2, found \"" + runtime + '"' + did_you_mean(runtime, known));
    }
    if (!runtime.empty()) {
        return runtime == "fsdp2";
    }
    return std::ranges::none_of(policies, [](const std::string& policy) {
        return policy.starts_with("size") || policy.starts_with("rules");
    });
}

PolicySpec PolicyOptions::written(const ModuleTree& tree, const std::string& absent) const {
    PolicySpec spec = parse_policy(policies.empty() ? std::vector<std::string>{absent} : policies, tree);
    for (PolicySpec::Member& member : spec.members) {
        if (!force_leaf.empty()) {
            member.force_leaf = force_leaf;
        }
        if (!exclude.empty()) {
            member.exclude = exclude;
        }
    }
    return spec;
}

PolicySpec PolicyOptions::spec(const ModuleTree& tree, const WrapOptions& options) const {
    PolicySpec spec = written(tree, "blocks");
    if (is_fsdp2()) {
        return as_fully_shard_calls(tree, spec, options);
    }
    if (spec.kind == PolicySpec::Kind::calls) {
        spec.kind = PolicySpec::Kind::manual;
    }
    return spec;
}

WrapOptions PolicyOptions::wrap_options(const ModuleTree& tree) const {
    WrapOptions options;
    options.use_orig_params = use_orig_params;
    for (const std::string& glob : ignore) {
        name_paths(tree, glob, options);
    }
    return options;
}

}  // namespace fsdplan::cli
