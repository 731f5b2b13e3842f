#include "policy_options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace fsdplan::cli {
namespace {

/// All paths of a tree that a glob means: modules first, else parameters.
void match(const ModuleTree& tree, const std::string& glob, WrapOptions& options) {
    std::vector<std::string> paths;
    for (std::size_t m = 1; m < tree.size(); ++m) {
        const std::string path = tree.path(static_cast<ModuleIndex>(m));
        paths.push_back(path);
        if (glob_matches(glob, path)) {
            options.ignored_modules.push_back(path);
        }
    }
    if (!options.ignored_modules.empty()) {
        return;
    }
    const std::size_t before = options.ignored_parameters.size();
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const std::string path = tree.path(static_cast<ModuleIndex>(m));
        for (const std::string& name : tree.parameter_names(static_cast<ModuleIndex>(m))) {
            paths.push_back(path.empty() ? name : path + "." + name);
            if (glob_matches(glob, paths.back())) {
                options.ignored_parameters.push_back(paths.back());
            }
        }
    }
    if (options.ignored_parameters.size() == before) {
        throw Error(ErrorKind::input, "--ignore",
                    "no module or parameter of this model matches \"" + glob + '"' + did_you_mean(glob, paths));
    }
}

}  // namespace

void PolicyOptions::declare(CLI::App& app, const std::string& help) {
    const std::string group = "Policy";
    app.add_option("--policy", policy, help)
        ->type_name("KIND[:ARGUMENTS]")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(group);
    app.add_option("--force-leaf", force_leaf, "size: classes that are not looked into, instead of MultiheadAttention")
        ->type_name("CLASS,...")
        ->delimiter(',')
        ->group(group);
    app.add_option("--exclude", exclude, "size: classes that are never units, instead of ModuleList and ModuleDict")
        ->type_name("CLASS,...")
        ->delimiter(',')
        ->group(group);
    app.add_option("--ignore", ignore, "modules or parameters that FSDP leaves alone; may be repeated")
        ->type_name("GLOB")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(group);
}

PolicySpec PolicyOptions::spec(const ModuleTree& tree) const {
    const std::vector<std::string> size{"size"};
    PolicySpec spec = parse_policy(policy.empty() ? size : policy, tree);
    for (PolicySpec::Member& member : spec.members) {
        if (member.name == "size") {
            member.force_leaf = force_leaf;
            member.exclude = exclude;
        }
    }
    return spec;
}

bool PolicyOptions::leaves_threshold_open() const {
    return policy.empty() || std::ranges::find(policy, "size") != policy.end();
}

WrapOptions PolicyOptions::wrap_options(const ModuleTree& tree) const {
    WrapOptions options;
    for (const std::string& glob : ignore) {
        match(tree, glob, options);
    }
    return options;
}

std::string PolicyOptions::default_runtime() const {
    // Classes, blocks, calls and no policy can be said with fully_shard too; the recursive ones cannot.
    const bool sayable = !policy.empty() && std::ranges::all_of(policy, [](const std::string& text) {
        const std::string kind = text.substr(0, text.find(':'));
        return kind == "class" || kind == "blocks" || kind == "calls" || kind == "plan" || kind == "none";
    });
    return sayable ? "fsdp2" : "fsdp1";
}

}  // namespace fsdplan::cli
