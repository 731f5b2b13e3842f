#include <algorithm>

#include "checkpoint/call_player.hpp"

namespace fsdplan {
namespace {

/// FSDP1 with original parameters: all names are sorted, and the first of a unit brings the whole unit in.
std::vector<std::size_t> by_name(const StateLayout& layout) {
    std::vector<std::string_view> names(layout.tensors.size());
    for (const StateEntry& entry : layout.entries) {
        if (names[entry.tensor].empty()) {  // an optimizer knows a tied parameter by its first name
            names[entry.tensor] = entry.name;
        }
    }
    std::vector<std::vector<std::size_t>> units;
    for (const StateUnit& unit : layout.units) {
        std::vector<std::size_t>& tensors = units.emplace_back();
        std::ranges::copy_if(unit.tensors, std::back_inserter(tensors),
                             [&](std::size_t t) { return layout.tensors[t].trainable; });
        std::ranges::sort(tensors, {}, [&](std::size_t t) { return names[t]; });
    }
    std::erase_if(units, [](const std::vector<std::size_t>& tensors) { return tensors.empty(); });
    std::ranges::sort(units, {},
                      [&](const std::vector<std::size_t>& tensors) { return names[tensors.front()]; });
    std::vector<std::size_t> order;
    for (const std::vector<std::size_t>& tensors : units) {
        order.insert(order.end(), tensors.begin(), tensors.end());
    }
    return order;
}

}  // namespace

std::vector<PlacedTensor> placements(const StateLayout& layout) {
    std::vector<PlacedTensor> out(layout.tensors.size());
    for (const StateUnit& unit : layout.units) {
        for (std::size_t i = 0; i < unit.tensors.size(); ++i) {
            out[unit.tensors[i]] = {.unit = &unit, .offset = unit.offsets[i]};
        }
    }
    return out;
}

std::vector<std::size_t> optimizer_order(const StateLayout& layout) {
    if (layout.runtime == StateRuntime::fsdp1 && layout.use_orig_params && layout.sharded) {
        return by_name(layout);
    }
    std::vector<std::size_t> order;
    const auto add = [&](std::size_t t) {
        if (layout.tensors[t].trainable) {
            order.push_back(t);
        }
    };
    if (layout.runtime == StateRuntime::fsdp1 && !layout.use_orig_params) {
        for (const StateUnit& unit : layout.units) {
            std::ranges::for_each(unit.tensors, add);
        }
        return order;
    }
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        add(t);
    }
    return order;
}

}  // namespace fsdplan
