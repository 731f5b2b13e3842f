#include "policy_options.hpp"

#include <algorithm>

#include "arguments.hpp"

namespace fsdplan::cli {
namespace {

std::string policy_help(const std::string& when_absent) {
    std::string help =
        "which modules become units: none, blocks, class:CLASS[,CLASS…] (ModuleWrapPolicy), rules:FILE "
        "(CustomPolicy), calls:FILE (wrap or fully_shard calls)";
    for (const PolicyInfo* info : builtin::policies()) {
        help += ", " + std::string(info->syntax);
    }
    return help + "; the last ones are or-ed when repeated; " + when_absent;
}

/// All paths of a tree that a glob means: modules first, else parameters.
void match(const ModuleTree& tree, const std::string& glob, WrapOptions& options) {
    std::vector<std::string> paths;
    const std::size_t modules_before = options.ignored_modules.size();
    for (std::size_t m = 1; m < tree.size(); ++m) {
        paths.push_back(tree.path(ModuleIndex{static_cast<std::int32_t>(m)}));
        if (glob_matches(glob, paths.back())) {
            options.ignored_modules.push_back(paths.back());
        }
    }
    if (options.ignored_modules.size() > modules_before) {
        return;
    }
    const std::size_t parameters_before = options.ignored_parameters.size();
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        const std::string path = tree.path(module);
        for (const std::string& name : tree.parameter_names(module)) {
            paths.push_back(join_path(path, name));
            if (glob_matches(glob, paths.back())) {
                options.ignored_parameters.push_back(paths.back());
            }
        }
    }
    if (options.ignored_parameters.size() == parameters_before) {
        throw Error(
            ErrorKind::input, "--ignore",
            "no module or parameter of this model matches \"" + glob + '"' + did_you_mean(glob, paths));
    }
}

}  // namespace

void PolicyOptions::declare(Arguments& arguments) {
    arguments.group("Policy");
    arguments.option("--policy", policies, policy_help(default_policy), "KIND[:ARGUMENTS]");
    arguments.list("--force-leaf", force_leaf,
                   "size: classes that are not looked into, instead of MultiheadAttention", "CLASS");
    arguments.list("--exclude", exclude,
                   "size: classes that are never units, instead of ModuleList and ModuleDict", "CLASS");
    arguments.option("--ignore", ignore, "modules or parameters that FSDP leaves alone; may be repeated",
                     "GLOB");
}

std::vector<std::string> PolicyOptions::asked_for() const {
    return policies.empty() ? std::vector<std::string>{default_policy} : policies;
}

PolicySpec PolicyOptions::spec(const ModuleTree& tree) const {
    PolicySpec spec = parse_policy(asked_for(), tree);
    for (PolicySpec::Member& member : spec.members) {
        if (member.name == "size") {
            member.force_leaf = force_leaf;
            member.exclude = exclude;
        }
    }
    return spec;
}

bool PolicyOptions::leaves_threshold_open() const {
    const std::vector<std::string> asked = asked_for();
    return std::ranges::find(asked, "size") != asked.end();
}

WrapOptions PolicyOptions::wrap_options(const ModuleTree& tree) const {
    WrapOptions options;
    for (const std::string& glob : ignore) {
        match(tree, glob, options);
    }
    return options;
}

std::string PolicyOptions::default_runtime() const {
    // Classes, blocks, calls and no policy can be said with fully_shard too; a threshold or rules cannot.
    const std::vector<std::string> asked = asked_for();
    const bool sayable = std::ranges::none_of(
        asked, [](const std::string& text) { return text.starts_with("size") || text.starts_with("rules"); });
    return sayable ? "fsdp2" : "fsdp1";
}

}  // namespace fsdplan::cli
