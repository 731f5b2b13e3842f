#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdplan/wrap.hpp"
#include "wrap/resolved.hpp"

namespace fsdplan {

/// A model while FSDP1 units are being constructed in it: what every module registers now.
///
/// Wrapping replaces a child slot by the unit and takes the unit's parameters: with use_orig_params=False
/// they disappear from the registrations below the unit, and a flat parameter appears on its module; with
/// use_orig_params=True they stay, marked as taken, and hold this rank's piece only. Counts and errors follow
/// from that. Sections 5 and 6 of the rules in docs/wrapping.md.
class WrappedModel {
public:
    /// A child slot of the tree; `root_slot` is the place of the root, which has none.
    static constexpr std::int32_t root_slot = -1;

    struct Request {
        ModuleIndex module{};
        ModuleIndex parent{};           ///< of the slot
        std::int32_t slot = root_slot;  ///< index into ModuleTree::child
        UnitArguments arguments{};      ///< that differ from the root's
    };

    WrappedModel(const ModuleTree& tree, const Resolved& resolved);

    const ModuleTree& tree() const { return tree_; }
    const Resolved& resolved() const { return resolved_; }

    /// True when no count can change while units are constructed: nothing is shared, or nothing that matters.
    bool counts_are_static() const { return counts_are_static_; }
    /// Elements of the distinct parameters below m as the module looks now, ignored ones left out.
    std::int64_t numel(ModuleIndex m);
    /// Whether a slot strictly below m holds a unit.
    bool has_unit_below(ModuleIndex m);
    bool is_unit(std::int32_t slot) const { return unit_in_slot_[static_cast<std::size_t>(slot)] >= 0; }
    /// Changes whenever a unit is constructed.
    std::uint32_t version() const { return static_cast<std::uint32_t>(units_.size()); }

    /// Constructs FSDP around a module. What PyTorch would raise becomes a diagnostic; see failed().
    void construct(const Request& request);
    void report(Diagnostic diagnostic) { plan_.diagnostics.push_back(std::move(diagnostic)); }
    /// True once an error was met after which PyTorch would not have gone on and we cannot say how it would.
    bool stopped() const { return stopped_; }
    void stop() { stopped_ = true; }
    /// Reports a lazy parameter that is not ignored below m and stops; false when there is none.
    bool stop_at_uninitialized(ModuleIndex m, const char* error_type);

    /// The units in the order of FSDP.fsdp_modules(), with warnings about ties.
    WrapPlan finish();

private:
    struct Managed {
        std::vector<TensorIndex> tensors;
        std::vector<std::string> paths;           // below the unit's module
        std::vector<std::int32_t> registrations;  // all of these tensors below the module
    };
    Managed collect(ModuleIndex m);
    void check(const Unit& unit, bool use_orig_params);
    void warn_of_frozen(const Unit& unit);
    void flatten_parameters(Unit& unit, const Managed& managed, bool use_orig_params);
    std::int64_t registered_numel(ModuleIndex m);
    void order_units();
    void report_ties();
    void report_shared_slots();
    Diagnostic diagnostic(WrapRule rule, Severity severity, std::string type, const Unit& unit) const;

    const ModuleTree& tree_;
    const Resolved& resolved_;
    bool counts_are_static_;
    std::vector<std::int64_t> static_numel_;

    std::vector<std::int32_t> unit_in_slot_;  // per child slot: unit, or -1
    std::vector<char> hidden_;                // per parameter registration: gone (use_orig_params=False)
    std::vector<std::int64_t> taken_numel_;   // per tensor: this rank's piece once taken, else -1
    std::vector<std::int64_t> flat_piece_;    // per row: registered flat parameter's piece, or 0
    std::vector<std::int32_t> module_stamp_;  // walks: visited in this walk
    std::vector<std::int32_t> tensor_stamp_;
    std::int32_t stamp_ = 0;

    std::vector<Unit> units_;  // in construction order
    std::vector<std::int32_t> slot_of_unit_;
    WrapPlan plan_;
    bool stopped_ = false;
};

}  // namespace fsdplan
