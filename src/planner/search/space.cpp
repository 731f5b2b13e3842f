#include "planner/search/space.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "wrap/resolved.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t longest_run = 3;                   // of neighbours outside of blocks in one call
constexpr std::array<std::int32_t, 3> several{2, 4, 8};  // blocks in one call
constexpr std::int32_t few_units = 8;                    // below, no fractions of them are kept
constexpr std::size_t most_kinds_named = 8;              // in a label

ModuleIndex row(std::size_t m) {
    return static_cast<ModuleIndex>(m);
}

bool is_number(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

class Places {
public:
    Places(const ModuleTree& tree, const SpaceOptions& options)
        : tree_(tree), options_(options), containers_(tree, default_exclude()) {}

    Space find() {
        fold_rows();
        make_slots();
        count_owned();
        if (options_.groups) {
            add_runs();
        }
        find_blocks();
        order();
        add_uses();
        return std::move(space_);
    }

private:
    // The fold of a row: its place in its parent's, where equal numbered children share one.
    void fold_rows() {
        fold_.assign(tree_.size(), 0);
        std::map<std::pair<std::int32_t, std::string>, std::int32_t> known;
        for (std::size_t p = 0; p < tree_.size(); ++p) {
            const std::span<const ModuleIndex> children = tree_.children(row(p));
            const std::span<const std::string> names = tree_.child_names(row(p));
            for (std::size_t c = 0; c < children.size(); ++c) {
                const std::size_t m = at(children[c]);
                if (static_cast<std::size_t>(tree_.parent[m]) != p) {
                    continue;
                }
                const bool one_of_many = options_.fold && is_number(names[c]);
                const std::string place = one_of_many ? "#" + std::to_string(tree_.shape[m]) : names[c];
                const auto [found, added] =
                    known.try_emplace({fold_[p], place}, static_cast<std::int32_t>(known.size()) + 1);
                fold_[m] = options_.fold ? found->second : static_cast<std::int32_t>(m);
            }
        }
    }

    bool is_place(std::size_t m) const {
        return tree_.numel[m] > 0 && !containers_.matches(tree_, row(m)) &&
               (options_.called.empty() || options_.called[m] != 0);
    }

    void make_slots() {
        slot_of_row_.assign(tree_.size(), -1);
        std::map<std::int32_t, std::int32_t> slot_of_fold;
        for (std::size_t m = 1; m < tree_.size(); ++m) {
            if (!is_place(m)) {
                continue;
            }
            const auto [found, added] =
                slot_of_fold.try_emplace(fold_[m], static_cast<std::int32_t>(space_.slots.size()));
            if (added) {
                space_.slots.push_back({.around = slot_around(m)});
            }
            space_.slots[static_cast<std::size_t>(found->second)].modules.push_back(row(m));
            slot_of_row_[m] = found->second;
        }
    }

    std::int32_t slot_around(std::size_t m) const {
        for (std::int32_t p = tree_.parent[m]; p > 0; p = tree_.parent[static_cast<std::size_t>(p)]) {
            if (const std::int32_t slot = slot_of_row_[static_cast<std::size_t>(p)]; slot >= 0) {
                return slot;
            }
        }
        return -1;
    }

    void count_owned() {
        std::vector<int> registered(tree_.tensors.size(), 0);
        for (const TensorIndex t : tree_.parameter) {
            ++registered[at(t)];
        }
        std::vector<std::int64_t> numel(space_.slots.size(), 0);
        std::vector<std::int64_t> trainable(space_.slots.size(), 0);
        for (std::size_t m = 0; m < tree_.size(); ++m) {
            const std::int32_t slot = slot_of_row_[m] >= 0 ? slot_of_row_[m] : slot_around(m);
            for (const TensorIndex t : tree_.parameters(row(m))) {
                if (slot >= 0 && registered[at(t)] == 1) {
                    const Tensor& tensor = tree_.tensors[at(t)];
                    numel[static_cast<std::size_t>(slot)] += tensor.numel;
                    trainable[static_cast<std::size_t>(slot)] += tensor.requires_grad ? tensor.numel : 0;
                }
            }
        }
        for (std::size_t s = 0; s < space_.slots.size(); ++s) {
            const auto instances = static_cast<std::int64_t>(space_.slots[s].modules.size());
            space_.slots[s].own_numel = numel[s] / instances;
            space_.slots[s].own_trainable_numel = trainable[s] / instances;
        }
    }

    // Innermost places outside of repeated blocks that follow each other, and those that share a tensor.
    void add_runs() {
        std::vector<std::int32_t> single;
        for (std::size_t s = 0; s < space_.slots.size(); ++s) {
            const Slot& slot = space_.slots[s];
            const bool innermost = std::ranges::none_of(space_.slots, [&](const Slot& other) {
                return other.around == static_cast<std::int32_t>(s);
            });
            if (innermost && slot.modules.size() == 1 && !inside_block(at(slot.modules.front()))) {
                single.push_back(static_cast<std::int32_t>(s));
            }
        }
        std::vector<std::vector<std::int32_t>> runs;
        constexpr std::size_t most_single = 12;
        for (std::size_t length = 2; length <= longest_run && single.size() <= most_single; ++length) {
            for (std::size_t i = 0; i + length <= single.size(); ++i) {
                runs.emplace_back(single.begin() + static_cast<std::ptrdiff_t>(i),
                                  single.begin() + static_cast<std::ptrdiff_t>(i + length));
            }
        }
        for (std::vector<std::int32_t>& tied : tied_places()) {
            if (std::ranges::find(runs, tied) == runs.end()) {
                runs.push_back(std::move(tied));
            }
        }
        for (const std::vector<std::int32_t>& run : runs) {
            if (trains_as_one(run)) {
                add_run(run);
            }
        }
    }

    /// All of them trainable or none. fully_shard hangs the backward of a call on the result of the module
    /// that ran last: one that is frozen and reads no activation gives a result without gradient, and the
    /// others' backward then finds their parameters gone.
    bool trains_as_one(const std::vector<std::int32_t>& run) const {
        const auto trains = [&](std::int32_t s) {
            const Slot& slot = space_.slots[static_cast<std::size_t>(s)];
            return std::ranges::any_of(tree_.parameters(slot.modules.front()),
                                       [&](TensorIndex t) { return tree_.tensors[at(t)].requires_grad; });
        };
        return std::ranges::all_of(run, trains) || std::ranges::none_of(run, trains);
    }

    bool inside_block(std::size_t m) const {
        for (std::int32_t slot = slot_of_row_[m]; slot >= 0;
             slot = space_.slots[static_cast<std::size_t>(slot)].around) {
            if (space_.slots[static_cast<std::size_t>(slot)].modules.size() > 1) {
                return true;
            }
        }
        return false;
    }

    std::vector<std::vector<std::int32_t>> tied_places() const {
        std::map<std::int32_t, std::vector<std::int32_t>> owners;
        for (std::size_t m = 1; m < tree_.size(); ++m) {
            for (const TensorIndex t : tree_.parameters(row(m))) {
                if (slot_of_row_[m] >= 0) {
                    owners[static_cast<std::int32_t>(at(t))].push_back(slot_of_row_[m]);
                }
            }
        }
        std::vector<std::vector<std::int32_t>> out;
        for (auto& [tensor, slots] : owners) {
            std::ranges::sort(slots);
            slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
            const bool each_once = std::ranges::all_of(slots, [&](std::int32_t s) {
                return space_.slots[static_cast<std::size_t>(s)].modules.size() == 1;
            });
            if (slots.size() > 1 && each_once && std::ranges::find(out, slots) == out.end()) {
                out.push_back(slots);
            }
        }
        return out;
    }

    void add_run(const std::vector<std::int32_t>& members) {
        Slot run{.together = true, .around = -1};
        const auto index = static_cast<std::int32_t>(space_.slots.size());
        for (const std::int32_t member : members) {
            Slot& slot = space_.slots[static_cast<std::size_t>(member)];
            run.modules.push_back(slot.modules.front());
            run.own_numel += slot.own_numel;
            run.own_trainable_numel += slot.own_trainable_numel;
            run.overlaps.push_back(member);
            slot.overlaps.push_back(index);
        }
        for (std::size_t s = 0; s < space_.slots.size(); ++s) {
            Slot& other = space_.slots[s];
            const bool shares = other.together && std::ranges::any_of(other.modules, [&](ModuleIndex m) {
                                    return std::ranges::find(run.modules, m) != run.modules.end();
                                });
            if (shares) {
                other.overlaps.push_back(index);
                run.overlaps.push_back(static_cast<std::int32_t>(s));
            }
        }
        space_.slots.push_back(std::move(run));
    }

    void find_blocks() {
        for (Slot& slot : space_.slots) {
            bool inside = false;
            for (std::int32_t s = slot.around; s >= 0; s = space_.slots[static_cast<std::size_t>(s)].around) {
                inside = inside || space_.slots[static_cast<std::size_t>(s)].modules.size() > 1;
            }
            slot.block = !slot.together && !inside && slot.modules.size() > 1;
        }
    }

    // Runs first, then by the last row in front, so that what is inside a slot comes before it.
    void order() {
        std::vector<std::int32_t> old_of(space_.slots.size());
        for (std::size_t s = 0; s < old_of.size(); ++s) {
            old_of[s] = static_cast<std::int32_t>(s);
        }
        std::ranges::stable_sort(old_of, [&](std::int32_t a, std::int32_t b) {
            const Slot& left = space_.slots[static_cast<std::size_t>(a)];
            const Slot& right = space_.slots[static_cast<std::size_t>(b)];
            if (left.together != right.together) {
                return left.together;
            }
            return at(left.modules.front()) > at(right.modules.front());
        });
        std::vector<std::int32_t> new_of(old_of.size());
        std::vector<Slot> ordered;
        for (std::size_t s = 0; s < old_of.size(); ++s) {
            new_of[static_cast<std::size_t>(old_of[s])] = static_cast<std::int32_t>(s);
            ordered.push_back(std::move(space_.slots[static_cast<std::size_t>(old_of[s])]));
        }
        for (Slot& slot : ordered) {
            slot.around = slot.around < 0 ? -1 : new_of[static_cast<std::size_t>(slot.around)];
            for (std::int32_t& other : slot.overlaps) {
                other = new_of[static_cast<std::size_t>(other)];
            }
        }
        space_.slots = std::move(ordered);
    }

    void add_uses() {
        for (const Slot& slot : space_.slots) {
            std::vector<Use> uses{{}};
            const auto instances = static_cast<std::int32_t>(slot.together ? 1 : slot.modules.size());
            add_kept(uses, 1, instances);
            for (const std::int32_t n : several) {
                if (options_.groups && slot.block && n < instances) {
                    add_kept(uses, n, (instances + n - 1) / n);
                }
            }
            space_.uses.push_back(std::move(uses));
        }
    }

    void add_kept(std::vector<Use>& uses, std::int32_t neighbours, std::int32_t units) const {
        uses.push_back({.neighbours = neighbours, .kept = 0});
        if (!options_.reshard) {
            return;
        }
        if (units >= few_units) {
            for (std::int32_t quarter = 1; quarter < 4; ++quarter) {
                uses.push_back({.neighbours = neighbours, .kept = units * quarter / 4});
            }
        }
        uses.push_back({.neighbours = neighbours, .kept = units});
    }

    const ModuleTree& tree_;
    const SpaceOptions& options_;
    ClassSet containers_;
    std::vector<std::int32_t> fold_;
    std::vector<std::int32_t> slot_of_row_;
    Space space_;
};

PolicySpec::Call call_of(const ModuleTree& tree, std::vector<ModuleIndex> modules, bool kept) {
    PolicySpec::Call call{.list = modules.size() > 1};
    std::ranges::sort(modules);
    for (const ModuleIndex m : modules) {
        call.modules.push_back(tree.path(m));
    }
    if (kept) {
        call.arguments.push_back({"reshard_after_forward", "false"});
    }
    return call;
}

std::string with_stars(const std::string& path) {
    std::string out;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find('.', begin), path.size());
        const std::string_view part = std::string_view(path).substr(begin, end - begin);
        out += out.empty() ? "" : ".";
        out += is_number(part) ? "*" : part;
        begin = end + 1;
    }
    return out;
}

std::ptrdiff_t depth_of(const ModuleTree& tree, ModuleIndex m) {
    std::ptrdiff_t depth = 0;
    for (std::int32_t row = tree.parent[at(m)]; row >= 0; row = tree.parent[static_cast<std::size_t>(row)]) {
        ++depth;
    }
    return depth;
}

struct Drawn {
    std::ptrdiff_t depth = 0;
    ModuleIndex first;
    PolicySpec::Call call;
};

}  // namespace

std::int64_t Space::units(std::size_t slot, const Use& use) const {
    if (use.neighbours == 0) {
        return 0;
    }
    return slots[slot].together
               ? 1
               : ceil_div(static_cast<std::int64_t>(slots[slot].modules.size()), use.neighbours);
}

Space space_of(const ModuleTree& tree, const SpaceOptions& options) {
    return Places(tree, options).find();
}

bool overlaps(const Space& space, const Pattern& pattern) {
    for (std::size_t s = 0; s < space.slots.size(); ++s) {
        if (space.uses[s][pattern[s]].neighbours == 0) {
            continue;
        }
        for (const std::int32_t other : space.slots[s].overlaps) {
            const auto o = static_cast<std::size_t>(other);
            if (space.uses[o][pattern[o]].neighbours > 0) {
                return true;
            }
        }
    }
    return false;
}

PolicySpec policy_of(const ModuleTree& tree, const Space& space, const Pattern& pattern, bool by_policy) {
    PolicySpec spec;
    if (by_policy) {
        spec.kind = PolicySpec::Kind::recursive;
        PolicySpec::Member names{.name = "names"};
        for (std::size_t s = 0; s < space.slots.size(); ++s) {
            if (space.uses[s][pattern[s]].neighbours > 0) {
                for (const ModuleIndex m : space.slots[s].modules) {
                    names.modules.push_back(tree.path(m));
                }
            }
        }
        spec.members.push_back(std::move(names));
        return spec;
    }
    spec.kind = PolicySpec::Kind::calls;
    std::vector<Drawn> drawn;
    for (std::size_t s = 0; s < space.slots.size(); ++s) {
        const Slot& slot = space.slots[s];
        const Use use = space.uses[s][pattern[s]];
        if (use.neighbours == 0) {
            continue;
        }
        const std::int64_t units = space.units(s, use);
        const std::size_t step =
            slot.together ? slot.modules.size() : static_cast<std::size_t>(use.neighbours);
        for (std::size_t begin = 0, unit = 0; begin < slot.modules.size(); begin += step, ++unit) {
            const std::size_t end = std::min(begin + step, slot.modules.size());
            std::vector<ModuleIndex> modules(slot.modules.begin() + static_cast<std::ptrdiff_t>(begin),
                                             slot.modules.begin() + static_cast<std::ptrdiff_t>(end));
            const bool kept = static_cast<std::int64_t>(unit) >= units - use.kept;
            const ModuleIndex first = modules.front();
            drawn.push_back({depth_of(tree, first), first, call_of(tree, std::move(modules), kept)});
        }
    }
    // The deepest first, so that whatever is inside a unit is a unit by then and like calls stand together.
    std::ranges::stable_sort(drawn, [](const Drawn& a, const Drawn& b) {
        return std::pair(a.depth, a.first) > std::pair(b.depth, b.first);
    });
    for (Drawn& one : drawn) {
        spec.calls.push_back(std::move(one.call));
    }
    spec.calls.push_back({.modules = {""}});
    return spec;
}

std::string pattern_label(const ModuleTree& tree, const Space& space, const Pattern& pattern) {
    std::vector<std::pair<std::string, int>> kinds;  // of units, and how many slots read alike
    for (std::size_t s = space.slots.size(); s-- > 0;) {
        const Slot& slot = space.slots[s];
        const Use use = space.uses[s][pattern[s]];
        if (use.neighbours == 0) {
            continue;
        }
        std::string names;
        for (const ModuleIndex m : slot.modules) {
            const std::string path = slot.modules.size() > 1 && !slot.together
                                         ? with_stars(tree.path(slot.modules.front()))
                                         : tree.path(m);
            names += (names.empty() ? "" : " + ") + path;
            if (!slot.together) {
                break;
            }
        }
        if (use.neighbours > 1) {
            names += " by " + std::to_string(use.neighbours);
        }
        const std::int64_t units = space.units(s, use);
        if (use.kept > 0) {
            names += use.kept == units ? " (kept)" : " (last " + std::to_string(use.kept) + " kept)";
        }
        const auto known = std::ranges::find(kinds, names, &std::pair<std::string, int>::first);
        if (known == kinds.end()) {
            kinds.emplace_back(std::move(names), 1);
        } else {
            ++known->second;
        }
    }
    std::string text;
    for (std::size_t k = 0; k < std::min(kinds.size(), most_kinds_named); ++k) {
        const auto& [names, slots] = kinds[k];
        text += (k == 0 ? "" : ", ") + names + (slots > 1 ? " (" + std::to_string(slots) + " kinds)" : "");
    }
    if (kinds.size() > most_kinds_named) {
        text += ", and " + std::to_string(kinds.size() - most_kinds_named) + " more kinds";
    }
    return text.empty() ? "the whole model as one unit" : text;
}

}  // namespace fsdplan
