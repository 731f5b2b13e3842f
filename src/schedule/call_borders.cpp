#include "schedule/call_borders.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

std::size_t index(std::int32_t i) {
    return static_cast<std::size_t>(i);
}

/// Lists of leaf calls by call, each leaf once. A residual stream makes readers of all leaves before them, so
/// that a search through a list would take the square of the layers.
class ListsOnce {
public:
    /// `lists`: empty ones, one a call.
    ListsOnce(const ForwardProgram& program, std::vector<std::vector<std::int32_t>>& lists)
        : lists_(lists), depth_(program.calls.size(), 0) {
        std::int32_t deepest = 0;
        for (std::size_t c = 0; c < depth_.size(); ++c) {
            const std::int32_t parent = program.calls[c].parent;
            depth_[c] = parent < 0 ? 0 : depth_[index(parent)] + 1;
            deepest = std::max(deepest, depth_[c]);
        }
        last_.assign(index(deepest) + 1, {});
    }

    /// Additions to calls of one depth come in the order of these calls, or a leaf is added to one of them
    /// alone.
    void add(std::int32_t call, std::int32_t leaf) {
        std::vector<std::int32_t>& last = last_[index(depth_[index(call)])];
        last.resize(depth_.size(), -1);
        if (last[index(leaf)] != call) {
            last[index(leaf)] = call;
            lists_[index(call)].push_back(leaf);
        }
    }

private:
    std::vector<std::vector<std::int32_t>>& lists_;
    std::vector<std::int32_t> depth_;
    std::vector<std::vector<std::int32_t>> last_;  // by depth and leaf: the call whose list had it last
};

}  // namespace

CheckpointedRegions checkpointed_regions(const ForwardProgram& program, const ModuleTree& tree,
                                         const ActivationCheckpointing& checkpointing) {
    CheckpointedRegions out;
    out.around.assign(program.calls.size(), -1);
    out.first_saved.assign(program.calls.size(), -1);
    out.last_saved.assign(program.calls.size(), -1);
    std::vector<char> checkpointed(tree.size(), 0);
    for (const ModuleIndex m : checkpointing.regions(tree)) {
        checkpointed[at(m)] = 1;
    }
    // A leaf whose result nobody reads handed its input through (dropout without effect): it saves nothing.
    std::vector<char> is_read(program.calls.size(), 0);
    for (const std::int32_t source : program.source) {
        is_read[index(source)] = 1;
    }
    for (const std::int32_t source : program.output_from) {
        is_read[index(source)] = 1;
    }
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(program.calls.size()); ++c) {
        const ForwardProgram::Call& call = program.calls[index(c)];
        const std::int32_t outer = call.parent < 0 ? -1 : out.around[index(call.parent)];
        const std::int32_t region = outer >= 0 || checkpointed[at(call.module)] == 0 ? outer : c;
        out.around[index(c)] = region;
        if (region >= 0 && call.leaf && is_read[index(c)] != 0) {
            std::int32_t& first = out.first_saved[index(region)];
            first = first < 0 ? c : first;
            out.last_saved[index(region)] = c;
        }
    }
    return out;
}

CallBorders call_borders(const ForwardProgram& program, std::span<const std::int32_t> unit_of_call,
                         const CheckpointedRegions& regions) {
    CallBorders out;
    out.results.resize(program.calls.size());
    out.sources.resize(program.calls.size());
    ListsOnce results(program, out.results);
    ListsOnce sources(program, out.sources);
    const auto has_border = [&](std::int32_t c) {
        return unit_of_call[index(c)] >= 0 || regions.begins_at(c);
    };
    const auto parent = [&](std::int32_t c) { return program.calls[index(c)].parent; };
    for (std::int32_t reader = 0; reader < static_cast<std::int32_t>(program.calls.size()); ++reader) {
        for (const std::int32_t source : program.sources(reader)) {
            for (std::int32_t c = source; c >= 0 && !program.inside(reader, c); c = parent(c)) {
                if (has_border(c)) {
                    results.add(c, source);
                }
            }
            for (std::int32_t c = reader; c >= 0 && !program.inside(source, c); c = parent(c)) {
                if (has_border(c)) {
                    sources.add(c, source);
                }
            }
        }
    }
    for (const std::int32_t source : program.output_from) {
        for (std::int32_t c = source; c >= 0; c = parent(c)) {
            if (has_border(c)) {
                results.add(c, source);
            }
        }
    }
    // A result that nobody reads is a tensor all the same.
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(program.calls.size()); ++c) {
        if (has_border(c) && out.results[index(c)].empty()) {
            for (std::int32_t leaf = program.calls[index(c)].end - 1; leaf >= c; --leaf) {
                if (program.calls[index(leaf)].leaf) {
                    out.results[index(c)].push_back(leaf);
                    break;
                }
            }
        }
    }
    return out;
}

}  // namespace fsdplan
