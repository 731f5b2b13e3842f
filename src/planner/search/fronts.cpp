#include "planner/search/fronts.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

namespace fsdplan {
namespace {

constexpr std::size_t most_labels = 160;

struct Label {
    std::int64_t cost_ns = 0;        // of all units so far, over all instances
    std::int64_t largest_numel = 0;  // unit
    std::int64_t left_numel = 0;     // of one instance, for the units around
    std::int64_t left_trainable_numel = 0;
    Pattern pattern;
};

/// Pairs than which none seen so far is lower in both: as the first rises, the second falls.
class Staircase {
public:
    /// Whether no pair is as low in both; then this one is taken up.
    bool take(std::int64_t first, std::int64_t second) {
        const auto above = steps_.upper_bound(first);
        if (above != steps_.begin() && std::prev(above)->second <= second) {
            return false;
        }
        auto worse = steps_.lower_bound(first);
        while (worse != steps_.end() && worse->second >= second) {
            worse = steps_.erase(worse);
        }
        steps_[first] = second;
        return true;
    }

private:
    std::map<std::int64_t, std::int64_t> steps_;
};

/// Keeps the labels that no other is better than, in order of their cost.
void prune(std::vector<Label>& labels) {
    std::ranges::stable_sort(labels, [](const Label& a, const Label& b) {
        return std::tie(a.cost_ns, a.largest_numel, a.left_numel) <
               std::tie(b.cost_ns, b.largest_numel, b.left_numel);
    });
    // Those in front cost no more, so that the other two decide.
    Staircase cheaper;
    std::vector<Label> kept;
    for (Label& label : labels) {
        if (cheaper.take(label.largest_numel, label.left_numel)) {
            kept.push_back(std::move(label));
        }
    }
    labels = std::move(kept);
    if (labels.size() > most_labels) {
        std::vector<Label> thinned;
        for (std::size_t i = 0; i < most_labels; ++i) {
            thinned.push_back(std::move(labels[i * (labels.size() - 1) / (most_labels - 1)]));
        }
        labels = std::move(thinned);
    }
}

class Fronts {
public:
    Fronts(const Space& space, const UnitCost& cost) : space_(space), cost_(cost) {}

    std::vector<Label> root(std::int64_t own_numel) const {
        std::vector<Label> labels = children_of(-1, 1, own_numel, own_numel);
        for (Label& label : labels) {
            label.cost_ns += cost_(label.left_numel, label.left_trainable_numel);
            label.largest_numel = std::max(label.largest_numel, label.left_numel);
            label.left_numel = 0;
        }
        prune(labels);
        return labels;
    }

private:
    std::vector<Label> children_of(std::int32_t around, std::int64_t instances, std::int64_t own_numel,
                                   std::int64_t own_trainable) const {
        std::vector<Label> labels{{.left_numel = own_numel,
                                   .left_trainable_numel = own_trainable,
                                   .pattern = Pattern(space_.slots.size(), 0)}};
        for (std::size_t s = 0; s < space_.slots.size(); ++s) {
            const Slot& slot = space_.slots[s];
            if (slot.around != around || slot.together) {
                continue;
            }
            const std::int64_t each = static_cast<std::int64_t>(slot.modules.size()) / instances;
            const std::vector<Label> inner = slot_front(s);
            std::vector<Label> combined;
            combined.reserve(labels.size() * inner.size());
            for (const Label& a : labels) {
                for (const Label& b : inner) {
                    Label both = a;
                    both.cost_ns += b.cost_ns;
                    both.largest_numel = std::max(a.largest_numel, b.largest_numel);
                    both.left_numel += each * b.left_numel;
                    both.left_trainable_numel += each * b.left_trainable_numel;
                    for (std::size_t i = 0; i < both.pattern.size(); ++i) {
                        both.pattern[i] = std::max(both.pattern[i], b.pattern[i]);
                    }
                    combined.push_back(std::move(both));
                }
            }
            labels = std::move(combined);
            prune(labels);
        }
        return labels;
    }

    std::vector<Label> slot_front(std::size_t s) const {
        const Slot& slot = space_.slots[s];
        const auto instances = static_cast<std::int64_t>(slot.modules.size());
        const std::vector<Label> open =
            children_of(static_cast<std::int32_t>(s), instances, slot.own_numel, slot.own_trainable_numel);
        std::vector<Label> labels = open;
        for (const Label& label : open) {
            for (std::size_t u = 1; u < space_.uses[s].size(); ++u) {
                const Use& use = space_.uses[s][u];
                if (use.kept > 0) {
                    continue;  // which are kept, the search finds by simulation
                }
                Label unit = label;
                unit.cost_ns += space_.units(s, use) * cost_(label.left_numel * use.neighbours,
                                                             label.left_trainable_numel * use.neighbours);
                unit.largest_numel = std::max(label.largest_numel, label.left_numel * use.neighbours);
                unit.left_numel = 0;
                unit.left_trainable_numel = 0;
                unit.pattern[s] = static_cast<UseIndex>(u);
                labels.push_back(std::move(unit));
            }
        }
        prune(labels);
        return labels;
    }

    const Space& space_;
    const UnitCost& cost_;
};

}  // namespace

std::vector<Pattern> pareto_patterns(const Space& space, std::int64_t root_numel, const UnitCost& cost,
                                     std::size_t most) {
    const std::vector<Label> labels = Fronts(space, cost).root(root_numel);
    std::vector<Pattern> out;
    const std::size_t count = std::min(most, labels.size());
    for (std::size_t i = 0; i < count; ++i) {
        out.push_back(labels[count == 1 ? 0 : i * (labels.size() - 1) / (count - 1)].pattern);
    }
    return out;
}

}  // namespace fsdplan
