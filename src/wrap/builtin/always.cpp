#include "fsdplan/wrap.hpp"

namespace fsdplan::builtin::policy {
namespace {

class Always final : public RecursivePolicy {
public:
    bool enter(const ModuleTree& /*tree*/, ModuleIndex /*m*/, std::int64_t /*numel*/) const override {
        return true;
    }
    bool wrap(const ModuleTree& /*tree*/, ModuleIndex /*m*/, std::int64_t /*rest*/) const override {
        return true;
    }
};

}  // namespace

extern const PolicyInfo always;
constinit const PolicyInfo always{
    .name = "always",
    .syntax = "always",
    .help = "wrap every module, containers and parameterless ones too (always_wrap_policy)",
    .parse =
        [](std::string_view text) {
            if (!text.empty()) {
                throw Error(ErrorKind::input, "--policy", "always takes no argument");
            }
            return PolicySpec::Member{.name = "always"};
        },
    .make = [](const PolicyArguments&) -> std::unique_ptr<RecursivePolicy> {
        return std::make_unique<Always>();
    },
};

}  // namespace fsdplan::builtin::policy
