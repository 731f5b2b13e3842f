#include "fsdplan/frontend.hpp"

// apply_fsdp() of torchtitan 0.3's llama3.
namespace fsdplan {

PolicySpec torchtitan_calls(const ModuleTree& tree, const TorchtitanSettings& settings) {
    const bool always = settings.reshard_after_forward == "always";
    const bool common = always || (settings.reshard_after_forward == "default" && !settings.pipeline);
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::calls;
    const auto call = [&](std::vector<std::string> modules, std::optional<bool> reshard) {
        PolicySpec::Call& made = spec.calls.emplace_back();
        made.list = modules.size() > 1;
        made.modules = std::move(modules);
        if (reshard) {
            made.arguments.emplace_back("reshard_after_forward", *reshard ? "true" : "false");
        }
    };
    // Called "output" before 0.3.
    const char* head = tree.find("lm_head") ? "lm_head" : "output";
    const auto present = [&](std::string_view path) { return tree.find(path).has_value(); };
    if (settings.weights_tied) {
        std::vector<std::string> ends;
        for (const char* path : {"tok_embeddings", "norm", head}) {
            if (present(path)) {
                ends.emplace_back(path);
            }
        }
        call(ends, always);
    } else {
        if (present("tok_embeddings")) {
            call({"tok_embeddings"}, common);
        }
        if (present("norm") && present(head)) {
            call({"norm", head}, always);  // used last and first again
        }
    }
    if (const auto layers = tree.find("layers")) {
        for (const ModuleIndex block : tree.children(*layers)) {
            call({tree.path(block)}, common);
        }
    }
    call({""}, std::nullopt);
    return spec;
}

}  // namespace fsdplan
