#include <algorithm>

#include "fsdplan/wrap.hpp"

// Equal subtrees get equal answers from size_based_auto_wrap_policy, so each distinct one (a shape) is
// decided once. Shapes are numbered children before parents.
namespace fsdplan {
namespace {

enum Decision : char { left_alone, entered, wrapped_itself };

}  // namespace

struct SizeBoundaries::Decisions {
    std::vector<char> decision;        // per shape
    std::vector<std::int64_t> amount;  // per shape: elements wrapped in the subtree
    std::int64_t largest_short = -1;   // largest number that fell short of the threshold
};

SizeBoundaries::SizeBoundaries(const ModuleTree& tree) : tree_(tree) {
    FSDPLAN_ASSERT(!tree.has_shared_modules, "counts are fixed only while no module is shared");
    const ClassSet force_leaf(tree, default_force_leaf());
    const ClassSet exclude(tree, default_exclude());
    std::vector<std::int32_t> representative(static_cast<std::size_t>(tree.shapes), -1);
    for (std::size_t m = tree.size(); m-- > 0;) {
        representative[static_cast<std::size_t>(tree.shape[m])] = static_cast<std::int32_t>(m);
    }
    for (const std::int32_t row : representative) {
        const ModuleIndex m{row};
        Shape shape{.numel = tree.numel[at(m)],
                    .part_begin = static_cast<std::int32_t>(parts_.size()),
                    .part_end = 0,
                    .force_leaf = force_leaf.matches(tree, m),
                    .exclude = exclude.matches(tree, m)};
        for (const ModuleIndex c : tree.children(m)) {
            const std::int32_t child = tree.shape[at(c)];
            const bool same_run =
                static_cast<std::int32_t>(parts_.size()) > shape.part_begin && parts_.back().shape == child;
            if (same_run) {
                ++parts_.back().count;
            } else {
                parts_.push_back({.shape = child, .count = 1});
            }
        }
        shape.part_end = static_cast<std::int32_t>(parts_.size());
        shapes_.push_back(shape);
    }
}

// Numbers of subtrees that are never reached are looked at too: they can only split an interval into two with
// the same result, and all() joins those again.
void SizeBoundaries::decide(std::int64_t min_num_params, Decisions& out) const {
    out.decision.assign(shapes_.size(), left_alone);
    out.amount.assign(shapes_.size(), 0);
    out.largest_short = -1;
    for (std::size_t s = 0; s < shapes_.size(); ++s) {
        const Shape& shape = shapes_[s];
        if (shape.numel < min_num_params) {
            out.largest_short = std::max(out.largest_short, shape.numel);
            continue;
        }
        if (shape.force_leaf) {
            continue;
        }
        std::int64_t below = 0;
        for (std::int32_t p = shape.part_begin; p < shape.part_end; ++p) {
            const Part& part = parts_[static_cast<std::size_t>(p)];
            below += part.count * out.amount[static_cast<std::size_t>(part.shape)];
        }
        const std::int64_t remainder = shape.numel - below;
        const bool enough = remainder >= min_num_params;
        if (!enough) {
            out.largest_short = std::max(out.largest_short, remainder);
        }
        const bool wrap = enough && !shape.exclude;
        out.decision[s] = wrap ? wrapped_itself : entered;
        out.amount[s] = wrap ? shape.numel : below;
    }
}

void SizeBoundaries::list(const Decisions& decisions, std::vector<ModuleIndex>& wrapped) const {
    wrapped.clear();
    const auto rows = static_cast<std::int32_t>(tree_.size());
    std::int32_t m = 0;
    while (m < rows) {
        const char decision =
            decisions.decision[static_cast<std::size_t>(tree_.shape[static_cast<std::size_t>(m)])];
        if (decision == wrapped_itself && m != 0) {  // the root is never asked
            wrapped.push_back(ModuleIndex{m});
        }
        m = decision == left_alone ? tree_.subtree_end[static_cast<std::size_t>(m)] : m + 1;
    }
}

void SizeBoundaries::evaluate(std::int64_t min_num_params, std::vector<ModuleIndex>& wrapped) const {
    Decisions decisions;
    decide(min_num_params, decisions);
    list(decisions, wrapped);
}

std::vector<SizeBoundaries::Interval> SizeBoundaries::all() const {
    std::vector<Interval> out;
    Decisions decisions;
    std::vector<ModuleIndex> wrapped;
    std::optional<std::int64_t> high;
    std::int64_t threshold = tree_.numel[0] + 1;
    while (threshold >= 0) {
        decide(threshold, decisions);
        list(decisions, wrapped);
        const std::int64_t low = std::max<std::int64_t>(0, decisions.largest_short + 1);
        if (!out.empty() && out.back().wrapped == wrapped) {
            out.back().low = low;
        } else {
            out.push_back({.low = low, .high = high, .wrapped = wrapped});
        }
        threshold = low - 1;
        high = threshold;
    }
    return out;
}

}  // namespace fsdplan
