#include "schedule/fsdp2_refusals.hpp"

#include <algorithm>
#include <charconv>

#include "schedule/reshard_ranks.hpp"

namespace fsdplan {
namespace {

std::string in_words(const Unit& unit) {
    return unit.path.empty() ? "the root unit" : "the unit \"" + unit.path + "\"";
}

std::string shown_shape(const std::vector<std::int64_t>& shape) {
    std::string out = "torch.Size([";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return out + "])";
}

class Refusals {
public:
    Refusals(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job)
        : tree_(tree), plan_(plan), job_(job) {}

    std::vector<Diagnostic> find() {
        if (plan_.units.empty()) {
            return {};
        }
        check_calls();
        check_order();
        return std::move(found_);
    }

private:
    // fully_shard, call by call; the first one that fails ends the program.
    void check_calls() {
        for (const std::int32_t index : plan_.construction_order) {
            const Unit& unit = plan_.units[static_cast<std::size_t>(index)];
            if (check_reshard(unit) || check_shard_dim(unit)) {
                return;
            }
        }
    }

    bool check_reshard(const Unit& unit) {
        std::optional<Diagnostic> refused;
        if (const std::string* own = find_argument(unit.arguments, "reshard_after_forward")) {
            if (*own != "true" && *own != "false") {  // a whole number of 1 is not True
                refused = refused_reshard(*own_reshard(unit), job_.mesh.shard);
            }
        } else if (job_.reshard_after_forward.value_or(0) > 1) {
            refused = refused_reshard(*job_.reshard_after_forward, job_.mesh.shard);
        }
        if (refused) {
            refused->unit = unit.path;
            found_.push_back(*refused);
        }
        return refused.has_value();
    }

    // FSDPParam: rows may be padded, other dimensions not.
    bool check_shard_dim(const Unit& unit) {
        const std::int64_t dim = job_.fsdp2.shard_dim;
        const auto uneven = std::ranges::find_if(unit.parameters, [&](TensorIndex t) {
            const std::vector<std::int64_t>& shape = tree_.tensors[at(t)].shape;
            return dim > 0 && static_cast<std::int64_t>(shape.size()) > dim &&
                   shape[static_cast<std::size_t>(dim)] % job_.mesh.shard != 0;
        });
        if (uneven == unit.parameters.end()) {
            return false;
        }
        const std::string& path =
            unit.parameter_paths[static_cast<std::size_t>(uneven - unit.parameters.begin())];
        const std::vector<std::int64_t>& shape = tree_.tensors[at(*uneven)].shape;
        const std::string ranks = std::to_string(job_.mesh.shard);
        found_.push_back(
            {.rule = WrapRule::uneven_shard_dim,
             .severity = Severity::error,
             .error_type = "NotImplementedError",
             .unit = unit.path,
             .tensors = {path},
             .message = "dimension " + std::to_string(dim) + " of \"" + path + "\" has " +
                        std::to_string(shape[static_cast<std::size_t>(dim)]) + " entries, which " + ranks +
                        " ranks cannot share evenly; shard it along its rows",
             .error_text = "FSDP does not support uneven sharding on dim " + std::to_string(dim) + ": " +
                           shown_shape(shape) + " (world size: " + ranks + ")"});
        return true;
    }

    // FSDPState._lazy_init: the outermost unit that runs first declares itself the root of those below it.
    void check_order() {
        const Unit& root = plan_.units.back();
        const auto runs = [&](const Unit& unit) {
            return std::ranges::find_first_of(tree_.calls.module, unit.modules);
        };
        const auto root_runs = runs(root);
        if (root_runs == tree_.calls.module.end()) {
            return;
        }
        const Unit* first = nullptr;
        for (const Unit& unit : plan_.units) {
            const bool nested = at(unit.module) > at(root.module) &&
                                static_cast<std::int32_t>(unit.module) < tree_.subtree_end[at(root.module)];
            // torch names the one that its walk from the root meets first.
            if (nested && runs(unit) < root_runs && (first == nullptr || unit.module < first->module)) {
                first = &unit;
            }
        }
        if (first != nullptr) {
            found_.push_back(
                {.rule = WrapRule::unit_before_root,
                 .severity = Severity::forward_error,
                 .error_type = "RuntimeError",
                 .unit = first->path,
                 .message = "\"" + first->path + "\" runs before " + in_words(root) +
                            " and takes itself for the root; run the whole model first",
                 .error_text = "FSDP state has already been lazily initialized for " + first->path});
        }
    }

    const ModuleTree& tree_;
    const WrapPlan& plan_;
    const TrainingJob& job_;
    std::vector<Diagnostic> found_;
};

}  // namespace

// _get_post_forward_mesh_info.
std::optional<std::int64_t> own_reshard(const Unit& unit) {
    const std::string* own = find_argument(unit.arguments, "reshard_after_forward");
    if (own == nullptr) {
        return std::nullopt;
    }
    std::int64_t ranks = *own == "true" ? 1 : 0;
    std::from_chars(own->data(), own->data() + own->size(), ranks);  // leaves it as it is for true and false
    return ranks;
}

std::optional<Diagnostic> refused_reshard(std::int64_t ranks, std::int64_t shard) {
    if (ranks >= 1 && ranks <= shard && shard % ranks == 0) {
        return std::nullopt;
    }
    std::string divisors;
    for (std::int64_t n = 2; n < shard && n <= 64; ++n) {
        divisors += shard % n == 0 ? std::to_string(n) + ", " : "";
    }
    return Diagnostic{.rule = WrapRule::reshard_ranks,
                      .severity = Severity::error,
                      .error_type = "ValueError",
                      .message = "groups of " + std::to_string(ranks) + " do not divide the " +
                                 std::to_string(shard) + " ranks that a parameter is sharded over; give " +
                                 divisors + "true or false",
                      .error_text = "If passing reshard_after_forward as an int, it should be a factor of " +
                                    std::to_string(shard) + ", not " + std::to_string(ranks)};
}

std::vector<Diagnostic> fsdp2::refusals(const ModuleTree& tree, const WrapPlan& plan,
                                        const TrainingJob& job) {
    return Refusals(tree, plan, job).find();
}

}  // namespace fsdplan
