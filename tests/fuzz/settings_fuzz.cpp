#include <string>

#include "fsdplan/frontend.hpp"

// Any bytes as the settings file of any front end: a plan whose units can be drawn, or an Error.
namespace {

using namespace fsdplan;

struct Model {
    ModelGraph graph;
    ModuleTree tree;
};

void read_for(const Model& model, const std::string& text) {
    for (const FrontendInfo* info : builtin::frontends()) {
        try {
            const FrontendPlan plan = info->read(
                text, "settings", {.model = model.graph, .tree = model.tree, .job = {}, .ranks = 4});
            static_cast<void>(wrap(model.tree, plan.policy, plan.wrap));
        } catch (const Error&) {
            continue;  // refused with a reason
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Model model = [] {
        ModelGraph graph = import_model(FSDPLAN_FUZZ_FILE);
        ModuleTree tree = flatten(graph);
        return Model{.graph = std::move(graph), .tree = std::move(tree)};
    }();
    read_for(model, std::string(reinterpret_cast<const char*>(data), size));
    return 0;
}
