#include "schedule/fsdp1_refusals.hpp"

#include <algorithm>

namespace fsdplan::fsdp1 {
namespace {

std::string in_words(const Unit& unit) {
    return unit.path.empty() ? "the root unit" : "the unit \"" + unit.path + "\"";
}

class Refusals {
public:
    Refusals(const WrapPlan& plan, const TrainingJob& job) : plan_(plan), job_(job) {}

    std::vector<Diagnostic> find() {
        if (plan_.units.empty()) {
            return {};
        }
        check_groups();
        check_equal("use_orig_params", "_use_orig_params", job_.use_orig_params);
        check_equal("limit_all_gathers", "limit_all_gathers", job_.limit_all_gathers);
        return std::move(found_);
    }

private:
    // _init_process_group_state: a policy makes the groups of its nodes itself, a call by hand does not.
    void check_groups() {
        if (!is_hybrid(job_.strategy) || job_.fsdp1.process_groups || plan_.by_policy) {
            return;
        }
        const std::string strategy = "ShardingStrategy." + std::string(name(job_.strategy));
        found_.push_back({.rule = WrapRule::hybrid_without_groups,
                          .severity = Severity::error,
                          .error_type = "ValueError",
                          .unit = first_constructed().path,
                          .message = "nobody says which ranks shard and which replicate; give a device mesh "
                                     "of two dimensions or two process groups",
                          .error_text = "Manual wrapping with " + strategy +
                                        " requires explicit specification of process group or device_mesh."});
    }

    const Unit& first_constructed() const {
        return plan_.construction_order.empty()
                   ? plan_.units.front()
                   : plan_.units[static_cast<std::size_t>(plan_.construction_order.front())];
    }

    // _share_state_and_init_handle_attrs: these settings are the same in all units.
    void check_equal(std::string_view argument, const std::string& attribute, bool of_root) {
        const auto value = [&](const Unit& unit) {
            const std::string* own = find_argument(unit.arguments, argument);
            return own == nullptr ? of_root : *own == "true";
        };
        const bool first = value(plan_.units.front());
        const auto other =
            std::ranges::find_if(plan_.units, [&](const Unit& unit) { return value(unit) != first; });
        if (other == plan_.units.end()) {
            return;
        }
        const std::string setting(argument);
        found_.push_back(
            {.rule = WrapRule::unequal_settings,
             .severity = Severity::forward_error,
             .error_type = "ValueError",
             .unit = other->path,
             .message = in_words(*other) + " has " + setting + (first ? "=False" : "=True") + " and " +
                        in_words(plan_.units.front()) + " has " + setting + (first ? "=True" : "=False") +
                        "; give all units the same",
             .error_text = "Expects one homogeneous value for " + attribute + " but got {False, True}"});
    }

    const WrapPlan& plan_;
    const TrainingJob& job_;
    std::vector<Diagnostic> found_;
};

}  // namespace

std::vector<Diagnostic> refusals(const ModuleTree& /*tree*/, const WrapPlan& plan, const TrainingJob& job) {
    return Refusals(plan, job).find();
}

}  // namespace fsdplan::fsdp1
