#include <algorithm>
#include <iterator>

#include "planner/decode/decode.hpp"

namespace fsdplan {
namespace {

// More modules than this beside the blocks are no embedding, norm and head, and each adds several policies.
constexpr std::size_t most_outside = 8;

struct Outside {
    std::string path;
    std::int64_t numel = 0;
};

/// Modules with parameters of their own outside of all blocks, in registration order; not the root.
std::vector<Outside> outside_blocks(const ModuleTree& tree, const ClassSet& blocks) {
    std::vector<Outside> found;
    for (std::size_t m = 1; m < tree.size();) {
        const auto module = static_cast<ModuleIndex>(m);
        if (blocks.matches(tree, module)) {
            m = static_cast<std::size_t>(tree.subtree_end[m]);
            continue;
        }
        if (!tree.parameters(module).empty()) {
            found.push_back({tree.path(module), tree.numel[m]});
        }
        ++m;
    }
    return found;
}

/// Blocks and single modules, each a unit.
PolicySpec blocks_and(const std::vector<std::string>& classes, std::vector<std::string> modules) {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::recursive;
    spec.members.push_back({.name = "transformer", .classes = classes});
    if (!modules.empty()) {
        spec.members.push_back({.name = "names", .modules = std::move(modules)});
    }
    return spec;
}

/// The same as fully_shard calls, the last two modules in one call: torchtitan's norm and output.
PolicySpec last_two_together(const ModuleTree& tree, const ClassSet& blocks,
                             const std::vector<std::string>& outside) {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::calls;
    const auto last_two = outside.end() - 2;
    for (auto path = outside.begin(); path != last_two; ++path) {
        spec.calls.push_back({.modules = {*path}});
    }
    for (std::size_t m = 1; m < tree.size(); ++m) {
        if (blocks.matches(tree, static_cast<ModuleIndex>(m))) {
            spec.calls.push_back({.modules = {tree.path(static_cast<ModuleIndex>(m))}});
        }
    }
    spec.calls.push_back({.modules = {last_two, outside.end()}, .list = true});
    spec.calls.push_back({.modules = {""}});
    return spec;
}

std::vector<std::string> paths_of(const std::vector<Outside>& modules) {
    std::vector<std::string> paths;
    std::ranges::transform(modules, std::back_inserter(paths), &Outside::path);
    return paths;
}

void add_around_blocks(const ModuleTree& tree, std::vector<PolicySpec>& out) {
    const std::vector<std::string> classes = block_classes(tree);
    if (classes.empty()) {
        return;
    }
    const ClassSet blocks(tree, classes);
    std::vector<Outside> outside = outside_blocks(tree, blocks);
    const std::vector<std::string> paths = paths_of(outside);
    out.push_back(blocks_and(classes, {}));
    if (paths.empty() || paths.size() > most_outside) {
        return;
    }
    // All but one, which stays in the root: the smallest first, since it is the large ones that get units.
    std::ranges::stable_sort(outside, {}, &Outside::numel);
    for (const Outside& left : outside) {
        std::vector<std::string> others;
        std::ranges::remove_copy(paths, std::back_inserter(others), left.path);
        out.push_back(blocks_and(classes, std::move(others)));
    }
    out.push_back(blocks_and(classes, paths));
    if (paths.size() >= 2) {
        out.push_back(last_two_together(tree, blocks, paths));
    }
    for (const std::string& alone : paths) {
        out.push_back(blocks_and(classes, {alone}));
    }
}

}  // namespace

std::vector<PolicySpec> common_units(const ModuleTree& tree, const WrapOptions& options) {
    std::vector<PolicySpec> out;
    add_around_blocks(tree, out);
    PolicySpec by_size;
    by_size.kind = PolicySpec::Kind::recursive;
    by_size.members.push_back({.name = "size"});
    for (const ThresholdInterval& interval : thresholds(tree, by_size, options)) {
        by_size.members.front().min_num_params = static_cast<double>(interval.low);
        out.push_back(by_size);
    }
    return out;
}

}  // namespace fsdplan
