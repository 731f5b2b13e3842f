#include <algorithm>

#include "fsdplan/wrap.hpp"
#include "wrap/policy_text.hpp"
#include "wrap/resolved.hpp"

namespace fsdplan::builtin::policy {
namespace {

class Names final : public RecursivePolicy {
public:
    explicit Names(std::vector<char> chosen) : chosen_(std::move(chosen)) {}

    bool enter(const ModuleTree& /*tree*/, ModuleIndex /*m*/, std::int64_t /*numel*/) const override {
        return true;
    }

    bool wrap(const ModuleTree& /*tree*/, ModuleIndex m, std::int64_t /*remainder*/) const override {
        return chosen_[at(m)] != 0;
    }

private:
    std::vector<char> chosen_;  // per row
};

bool is_glob(std::string_view text) {
    return text.find_first_of("*?") != std::string_view::npos;
}

std::vector<char> choose(const ModuleTree& tree, const std::vector<std::string>& names) {
    std::vector<char> chosen(tree.size(), 0);
    for (const std::string& text : names) {
        if (!is_glob(text)) {
            chosen[at(require_module(tree, text, "--policy names"))] = 1;
            continue;
        }
        bool any = false;
        for (std::size_t m = 0; m < tree.size(); ++m) {
            if (glob_matches(text, tree.path(ModuleIndex{static_cast<std::int32_t>(m)}))) {
                chosen[m] = 1;
                any = true;
            }
        }
        if (!any) {
            throw Error(ErrorKind::input, "--policy names",
                        "\"" + text + "\" matches no module of this model");
        }
    }
    return chosen;
}

}  // namespace

extern const PolicyInfo names;
constinit const PolicyInfo names{
    .name = "names",
    .syntax = "names:GLOB[,GLOB…]",
    .help = "wrap the modules with these paths (lambda_auto_wrap_policy)",
    .parse =
        [](std::string_view text) {
            PolicySpec::Member member{.name = "names"};
            member.modules = split_list(text);
            return member;
        },
    .make = [](const PolicyArguments& a) -> std::unique_ptr<RecursivePolicy> {
        return std::make_unique<Names>(choose(a.tree, a.member.modules));
    },
};

}  // namespace fsdplan::builtin::policy
