#include <algorithm>

#include "base/shape.hpp"
#include "fsdplan/compatibility.hpp"

namespace fsdplan {
namespace {

/// Ranks over which `piece` is a part of `whole`; 0: it is none.
struct Piece {
    std::string kind;
    std::int64_t ranks = 0;
};

Piece piece_of(std::span<const std::int64_t> whole, std::span<const std::int64_t> piece) {
    const bool same_rows = whole.size() == piece.size() && whole.size() > 1 &&
                           std::ranges::equal(whole.subspan(1), piece.subspan(1));
    if (same_rows) {
        return {"rows of one rank", ceil_div(whole.front(), piece.front())};
    }
    // A flat parameter's shard may end in the middle of a row; whole ranks divide it evenly.
    if (piece.size() == 1 && numel_of(whole) % piece.front() == 0) {
        return {"flat local shard", numel_of(whole) / piece.front()};
    }
    return {};
}

}  // namespace

ShapeMismatch explain_mismatch(std::span<const std::int64_t> saved, std::span<const std::int64_t> current) {
    if (std::ranges::equal(saved, current)) {
        return {.saved = "full", .current = "full"};
    }
    const bool saved_is_whole = numel_of(saved) >= numel_of(current);
    const Piece piece = saved_is_whole ? piece_of(saved, current) : piece_of(current, saved);
    if (piece.ranks == 0) {
        return {.saved = "other",
                .current = "other",
                .ranks = 0,
                .remedy = "the models differ: build the one that was saved"};
    }
    ShapeMismatch out{.saved = "full", .current = piece.kind, .ranks = piece.ranks};
    if (!saved_is_whole) {
        std::swap(out.saved, out.current);
        out.remedy =
            "save a full or sharded state dict (FULL_STATE_DICT, SHARDED_STATE_DICT, get_state_dict), "
            "not the model's own pieces";
    } else {
        out.remedy =
            "use FULL_STATE_DICT or SHARDED_STATE_DICT on the model side, or set_model_state_dict with "
            "full_state_dict=True";
    }
    return out;
}

}  // namespace fsdplan
