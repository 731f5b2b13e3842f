#include <charconv>

#include "fsdplan/wrap.hpp"
#include "wrap/policy_text.hpp"

namespace fsdplan::builtin::policy {
namespace {

class SizeBased final : public RecursivePolicy {
public:
    SizeBased(double min_num_params, ClassSet force_leaf, ClassSet exclude)
        : min_num_params_(min_num_params), force_leaf_(std::move(force_leaf)), exclude_(std::move(exclude)) {}

    bool enter(const ModuleTree& tree, ModuleIndex m, std::int64_t numel) const override {
        return static_cast<double>(numel) >= min_num_params_ && !force_leaf_.matches(tree, m);
    }

    bool wrap(const ModuleTree& tree, ModuleIndex m, std::int64_t remainder) const override {
        return static_cast<double>(remainder) >= min_num_params_ && !exclude_.matches(tree, m);
    }

private:
    double min_num_params_;
    ClassSet force_leaf_;  // not entered, and therefore never wrapped themselves
    ClassSet exclude_;
};

}  // namespace

extern const PolicyInfo size;
constinit const PolicyInfo size{
    .name = "size",
    .syntax = "size:MIN_NUM_PARAMS",
    .help =
        "wrap what has at least so many parameters left (size_based_auto_wrap_policy); 100M, 2e8 and 1_000 "
        "are numbers",
    .parse =
        [](std::string_view text) {
            PolicySpec::Member member{.name = "size"};
            member.min_num_params =
                text.empty() ? static_cast<double>(default_min_num_params) : parse_number(text);
            return member;
        },
    .make = [](const PolicyArguments& a) -> std::unique_ptr<RecursivePolicy> {
        return std::make_unique<SizeBased>(
            a.member.min_num_params.value_or(static_cast<double>(default_min_num_params)),
            ClassSet(a.tree, a.member.force_leaf.value_or(default_force_leaf())),
            ClassSet(a.tree, a.member.exclude.value_or(default_exclude())));
    },
};

}  // namespace fsdplan::builtin::policy
