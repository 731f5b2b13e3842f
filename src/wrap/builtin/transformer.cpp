#include "fsdplan/wrap.hpp"
#include "wrap/policy_text.hpp"

namespace fsdplan::builtin::policy {
namespace {

class Transformer final : public RecursivePolicy {
public:
    explicit Transformer(ClassSet classes) : classes_(std::move(classes)) {}

    bool enter(const ModuleTree& /*tree*/, ModuleIndex /*m*/, std::int64_t /*numel*/) const override {
        return true;
    }

    bool wrap(const ModuleTree& tree, ModuleIndex m, std::int64_t /*remainder*/) const override {
        return classes_.matches(tree, m);  // isinstance: a subclass matches too
    }

private:
    ClassSet classes_;
};

}  // namespace

extern const PolicyInfo transformer;
constinit const PolicyInfo transformer{
    .name = "transformer",
    .syntax = "transformer:CLASS[,CLASS…]",
    .help = "wrap every instance of the given classes (transformer_auto_wrap_policy)",
    .parse =
        [](std::string_view text) {
            PolicySpec::Member member{.name = "transformer"};
            member.classes = split_list(text);
            return member;
        },
    .make = [](const PolicyArguments& a) -> std::unique_ptr<RecursivePolicy> {
        return std::make_unique<Transformer>(ClassSet(a.tree, a.member.classes));
    },
};

}  // namespace fsdplan::builtin::policy
