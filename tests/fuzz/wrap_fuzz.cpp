#include <array>

#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"
#include "input_file.hpp"

// Any tree that can be imported has a plan under any policy, or diagnostics: shared modules, ties, scalars,
// uninitialised and empty parameters in all combinations.
namespace {

using namespace fsdplan;

constexpr std::size_t largest_tree = 200;  // counting for real, as with shared modules, is not linear

void wrap_in_all_ways(const ModuleTree& tree) {
    const std::array<std::string, 4> policies{"size:10", "always", "names:*", "blocks"};
    WrapOptions options;
    for (const bool use_orig_params : {false, true}) {
        options.use_orig_params = use_orig_params;
        options.world_size = 3;
        options.rank = 1;
        for (const std::string& policy : policies) {
            PolicySpec spec;
            try {
                spec = parse_policy(std::span(&policy, 1), tree);
            } catch (const Error&) {
                continue;  // no repeated blocks
            }
            static_cast<void>(wrap(tree, spec, options));
            static_cast<void>(wrap_fsdp2(tree, spec, options));
        }
        const std::array<std::string, 2> sizes{"size:1", "names:*.0"};
        static_cast<void>(thresholds(tree, parse_policy(sizes, tree), options));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const ModuleTree tree = flatten(import_model(fuzz::input_file(data, size)));
        if (tree.size() > largest_tree) {
            return -1;
        }
        wrap_in_all_ways(tree);
    } catch (const Error&) {
        return -1;
    }
    return 0;
}
