#pragma once

#include <cstdint>
#include <vector>

#include "fsdplan/schedule.hpp"

// What the runtimes share: the order of units, and sums over those before, after and around one.
namespace fsdplan {

/// One row per unit in the order in which forward reaches them, with place and managed elements filled in.
std::vector<UnitLayout> rows_of(const ModuleTree& tree, const WrapPlan& plan);

/// Rows by the end of their forward: inner units before the one around them. Rows without parameters are left
/// out: runtimes never prefetch them.
std::vector<std::int32_t> post_forward_order(const std::vector<UnitLayout>& units);

/// For each row the one whose forward ends just before its own, which is what backward prefetches; -1: none.
std::vector<std::int32_t> backward_targets(const std::vector<UnitLayout>& units);

/// Row of the tree at which each tensor is registered last: its gradient is complete when backward gets
/// there.
std::vector<std::int32_t> last_rows(const ModuleTree& tree);

/// Row at which the first trainable parameter is registered; the number of rows when there is none. Autograd
/// does not go back beyond it.
std::int32_t first_trainable_row(const ModuleTree& tree);

/// When the gradients of one unit appear during backward.
class GradientPlaces {
public:
    void add(std::int32_t row, std::int64_t bytes) { places_.push_back({row, bytes}); }
    void sort();
    /// Bytes of the gradients that exist once backward has reached module row `row` from behind.
    std::int64_t after(std::int32_t row) const;

private:
    struct Place {
        std::int32_t row;
        std::int64_t bytes;  // after sort(): of this place and all behind it
    };
    std::vector<Place> places_;
};

/// Sums of one member over ranges of rows.
class RowSums {
public:
    RowSums(const std::vector<UnitLayout>& units, std::int64_t UnitLayout::*member);

    std::int64_t all() const { return prefix_.back(); }
    std::int64_t up_to(std::int32_t row) const { return prefix_[static_cast<std::size_t>(row) + 1]; }
    std::int64_t before(std::int32_t row) const { return prefix_[static_cast<std::size_t>(row)]; }
    std::int64_t from(std::int32_t row) const { return all() - before(row); }

private:
    std::vector<std::int64_t> prefix_;
};

/// First row that starts behind the modules of `row`.
std::int32_t first_behind(const std::vector<UnitLayout>& units, std::int32_t row);

/// Sum of a member over the units around `row`, without itself.
template <typename Of>
std::int64_t sum_around(const std::vector<UnitLayout>& units, std::int32_t row, Of of) {
    std::int64_t sum = 0;
    for (std::int32_t e = units[static_cast<std::size_t>(row)].enclosing; e >= 0;
         e = units[static_cast<std::size_t>(e)].enclosing) {
        sum += of(e);
    }
    return sum;
}

/// Fills in the sums over units and counts the step's collectives: those of the units and those listed
/// already.
void add_up(StepLayout& layout);

/// Bytes of one element; sub-byte types count one.
std::int64_t element_bytes(DType dtype);

}  // namespace fsdplan
