#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdplan/search.hpp"

namespace fsdplan {

/// A place where boundaries can be drawn: a module, the same module in every repeated block, or neighbours
/// that go into one call.
struct Slot {
    std::vector<ModuleIndex> modules;  ///< in pre-order
    bool together = false;             ///< they are one unit rather than one each
    std::int32_t around = -1;          ///< the nearest slot that holds these modules; -1: the root
    std::int64_t own_numel = 0;  ///< of one instance, without the slots inside and without tied parameters
    std::int64_t own_trainable_numel = 0;
    bool block = false;                  ///< repeated, and not inside of what is repeated
    std::vector<std::int32_t> overlaps;  ///< slots that cannot be units beside this one
};

/// What is made of a slot.
struct Use {
    std::int32_t neighbours = 0;  ///< 0: no unit; n: one unit for each n modules
    std::int32_t kept = 0;        ///< units, from the last, that keep their parameters after forward

    friend bool operator==(const Use&, const Use&) = default;
};

/// An index into a slot's uses. Not a byte: gcc 12 at -O3 takes comparing vectors of bytes for reading too
/// much.
using UseIndex = std::uint16_t;
/// For each slot what is made of it.
using Pattern = std::vector<UseIndex>;

struct Space {
    std::vector<Slot> slots;  ///< inner ones before those around them
    std::vector<std::vector<Use>> uses;

    std::int64_t units(std::size_t slot, const Use& use) const;
};

struct SpaceOptions {
    bool fold = true;
    bool reshard = true;       ///< units may keep their parameters
    bool groups = true;        ///< calls of several modules
    std::vector<char> called;  ///< by row: whether forward calls the module; empty: not known
};

/// All places of a model: modules that own parameters and are called, but for containers and the root.
Space space_of(const ModuleTree& tree, const SpaceOptions& options);

/// The units of a pattern: for FullyShardedDataParallel by the names of modules (`by_policy`), otherwise as
/// calls of fully_shard, of which those that keep their parameters say so.
PolicySpec policy_of(const ModuleTree& tree, const Space& space, const Pattern& pattern, bool by_policy);

/// "layers.* by 4, layers.*.mlp.gate_proj (kept), norm + lm_head": the units of a pattern but for the root.
std::string pattern_label(const ModuleTree& tree, const Space& space, const Pattern& pattern);

/// Whether two slots that overlap are units.
bool overlaps(const Space& space, const Pattern& pattern);

}  // namespace fsdplan
