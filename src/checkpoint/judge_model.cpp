#include <algorithm>
#include <set>

#include "checkpoint/load_model.hpp"

// What a model holds after a load that raised nothing.
namespace fsdplan {
namespace {

std::string cast_word(DType from, DType to) {
    return std::string(name(from)) + "->" + std::string(name(to));
}

/// float32 to bfloat16 and the like.
bool loses_bits(DType from, DType to) {
    return is_floating_point(from) && is_floating_point(to) && from != to &&
           (bits(to) < bits(from) || (bits(to) == bits(from) && to != from));
}

void add_once(std::vector<std::string>& words, const std::string& word) {
    if (std::ranges::find(words, word) == words.end()) {
        words.push_back(word);
        std::ranges::sort(words);
    }
}

/// The last name that is loaded decides what a tied tensor holds: index into the saved tensors, or -1.
std::vector<std::int64_t> winners(const SavedCheckpoint& saved, const CheckpointSide& to) {
    std::vector<std::int64_t> winner(to.layout.tensors.size(), -1);
    std::set<std::string_view> in_file;
    for (const StateEntry& entry : saved.from.layout.entries) {
        if (saved.has_name(entry)) {
            in_file.insert(entry.name);
        }
    }
    for (const StateEntry& entry : to.layout.entries) {
        if (in_file.contains(entry.name)) {
            winner[entry.tensor] = saved.names.tensor(entry.name);
        }
    }
    return winner;
}

/// Without the strict check, what FSDP1 has inside an activation checkpoint wrapper is passed over.
bool stays_behind_wrapper(const CheckpointSide& to, const LoadRoute& route, std::string_view name) {
    const bool in_block = name.find_first_of("0123456789") != std::string_view::npos;
    return to.layout.runtime == StateRuntime::fsdp1 && to.checkpoint_wrapper && !to.strict && in_block &&
           route.model == ModelLoader::version_neutral_full;
}

bool rounds_buffer(const StateLayout& from, const StateTensor& theirs, const StateLayout& to,
                   const StateTensor& ours) {
    return ours.is_buffer && to.low_precision_buffers && !from.low_precision_buffers &&
           loses_bits(theirs.dtype, DType::bfloat16) && loses_bits(ours.dtype, DType::bfloat16);
}

}  // namespace

void judge_model(const SavedCheckpoint& saved, const CheckpointSide& to, const LoadRoute& route,
                 Compatibility& out) {
    const Names ours(to.layout);
    const std::vector<std::int64_t> winner = winners(saved, to);
    const bool spread = spreads_first_piece(saved, to, route);
    const auto wrong = [&](const char* kind) {
        ++out.model_wrong;
        add_once(out.wrong_kinds, kind);
    };
    for (const StateEntry& entry : saved.from.layout.entries) {
        const StateTensor& theirs = saved.from.layout.tensors[entry.tensor];
        ++out.model_tensors;
        const std::int64_t target = ours.tensor(entry.name);
        if (target < 0) {
            wrong("absent");
            continue;
        }
        const StateTensor& tensor = to.layout.tensors[static_cast<std::size_t>(target)];
        if (theirs.dtype != tensor.dtype) {
            add_once(out.casts, cast_word(theirs.dtype, tensor.dtype));
            out.loses_bits |= loses_bits(theirs.dtype, tensor.dtype);
        }
        if (winner[static_cast<std::size_t>(target)] != static_cast<std::int64_t>(entry.tensor) ||
            (spread && !theirs.is_buffer) || stays_behind_wrapper(to, route, entry.name) ||
            rounds_buffer(saved.from.layout, theirs, to.layout, tensor)) {
            wrong("value");
        }
    }
    for (const StateEntry& entry : to.layout.entries) {
        out.untouched += saved.names.find(entry.name) == nullptr ? 1 : 0;
    }
}

}  // namespace fsdplan
