#include "schedule/units.hpp"

#include <algorithm>
#include <numeric>

namespace fsdplan {

std::vector<UnitLayout> rows_of(const ModuleTree& tree, const WrapPlan& plan) {
    std::vector<UnitLayout> units;
    units.reserve(plan.units.size());
    for (std::size_t i = 0; i < plan.units.size(); ++i) {
        const Unit& unit = plan.units[i];
        const auto module = static_cast<std::int32_t>(unit.module);
        units.push_back({.unit = static_cast<std::int32_t>(i),
                         .begin = module,
                         .end = tree.subtree_end[at(unit.module)],
                         .numel = unit.numel});
    }
    std::ranges::stable_sort(units, {}, &UnitLayout::begin);
    std::vector<std::int32_t> around;
    for (std::size_t i = 0; i < units.size(); ++i) {
        while (!around.empty() && units[static_cast<std::size_t>(around.back())].end <= units[i].begin) {
            around.pop_back();
        }
        units[i].enclosing = around.empty() ? -1 : around.back();
        around.push_back(static_cast<std::int32_t>(i));
    }
    return units;
}

std::vector<std::int32_t> post_forward_order(const std::vector<UnitLayout>& units) {
    std::vector<std::int32_t> order;
    for (std::size_t i = 0; i < units.size(); ++i) {
        if (units[i].numel > 0) {
            order.push_back(static_cast<std::int32_t>(i));
        }
    }
    // Of units that end together the inner one, which starts later, ends first.
    std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
        const UnitLayout& left = units[static_cast<std::size_t>(a)];
        const UnitLayout& right = units[static_cast<std::size_t>(b)];
        return left.end != right.end ? left.end < right.end : a > b;
    });
    return order;
}

std::vector<std::int32_t> backward_targets(const std::vector<UnitLayout>& units) {
    std::vector<std::int32_t> targets(units.size(), -1);
    const std::vector<std::int32_t> order = post_forward_order(units);
    for (std::size_t i = 1; i < order.size(); ++i) {
        targets[static_cast<std::size_t>(order[i])] = order[i - 1];
    }
    return targets;
}

std::vector<std::int32_t> last_rows(const ModuleTree& tree) {
    std::vector<std::int32_t> rows(tree.tensors.size(), 0);
    for (std::size_t m = 0; m < tree.size(); ++m) {
        for (const TensorIndex tensor : tree.parameters(static_cast<ModuleIndex>(m))) {
            rows[at(tensor)] = static_cast<std::int32_t>(m);
        }
    }
    return rows;
}

std::int32_t first_trainable_row(const ModuleTree& tree) {
    for (std::size_t m = 0; m < tree.size(); ++m) {
        for (const TensorIndex tensor : tree.parameters(static_cast<ModuleIndex>(m))) {
            if (tree.tensors[at(tensor)].requires_grad) {
                return static_cast<std::int32_t>(m);
            }
        }
    }
    return static_cast<std::int32_t>(tree.size());
}

void GradientPlaces::sort() {
    std::ranges::stable_sort(places_, {}, &Place::row);
    for (std::size_t i = places_.size(); i-- > 1;) {
        places_[i - 1].bytes += places_[i].bytes;
    }
}

std::int64_t GradientPlaces::after(std::int32_t row) const {
    const auto found = std::ranges::lower_bound(places_, row, {}, &Place::row);
    return found == places_.end() ? 0 : found->bytes;
}

RowSums::RowSums(const std::vector<UnitLayout>& units, std::int64_t UnitLayout::*member) {
    prefix_.assign(1, 0);
    prefix_.reserve(units.size() + 1);
    for (const UnitLayout& unit : units) {
        prefix_.push_back(prefix_.back() + unit.*member);
    }
}

std::int32_t first_behind(const std::vector<UnitLayout>& units, std::int32_t row) {
    const std::int32_t end = units[static_cast<std::size_t>(row)].end;
    const auto found = std::ranges::lower_bound(units, end, {}, &UnitLayout::begin);
    return std::max(row + 1, static_cast<std::int32_t>(found - units.begin()));
}

namespace {

void count(std::vector<Collective>& all, const std::optional<Collective>& one) {
    if (!one || one->count == 0) {
        return;
    }
    const auto same = std::ranges::find_if(all, [&](Collective other) {
        other.count = one->count;
        return other == *one;
    });
    if (same == all.end()) {
        all.push_back(*one);
    } else {
        same->count += one->count;
    }
}

}  // namespace

void add_up(StepLayout& layout) {
    std::vector<Collective> own;  // of no particular unit: DDP's buckets
    own.swap(layout.collectives);
    for (const Collective& call : own) {
        count(layout.collectives, call);
    }
    for (const UnitLayout& unit : layout.units) {
        layout.shard_bytes += unit.shard_bytes;
        layout.gradient_shard_bytes += unit.gradient_shard_bytes;
        for (const std::optional<Collective>* call :
             {&unit.gather, &unit.regather, &unit.reduce, &unit.all_reduce}) {
            count(layout.collectives, *call);
        }
    }
    std::ranges::stable_sort(layout.collectives, [](const Collective& a, const Collective& b) {
        return a.kind != b.kind ? a.kind < b.kind : a.full_size() > b.full_size();
    });
    for (const Collective& call : layout.collectives) {
        layout.sent_bytes += call.count * call.sent().count;
    }
}

std::int64_t element_bytes(DType dtype) {
    return std::max(1, bits(dtype) / 8);
}

}  // namespace fsdplan
