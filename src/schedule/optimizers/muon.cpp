#include <algorithm>

#include "schedule/adam.hpp"

// Muon for matrices and AdamW for the rest, as torch.optim.Muon's own example has it.
// Source: torch/optim/_muon.py of PyTorch 2.13, and what DTensor was recorded to do with it.
namespace fsdplan {
namespace {

using Implementation = Optimizer::Implementation;
using Temporary = OptimizerStep::Temporary;

constexpr int iterations = 5;  // of Newton and Schulz
constexpr DType low = DType::bfloat16;
constexpr std::int64_t passes = 12;  // over a parameter's bytes beside the products
constexpr std::int32_t launches = 10;

bool is_matrix(const LocalParameter& p) {
    return p.dimensions() == 2;
}

/// A matrix and its parts in bfloat16.
struct Sizes {
    std::int64_t ranks;
    std::int64_t narrow;  ///< the smaller one of the two sizes
    std::int64_t wide;
    std::int64_t local_numel;
    std::int64_t padded_numel;  ///< of the largest part
    std::int64_t local_rows;
    bool is_tall;

    explicit Sizes(const LocalParameter& p)
        : ranks(p.ranks),
          narrow(std::min(p.shape[0], p.shape[1])),
          wide(std::max(p.shape[0], p.shape[1])),
          local_numel(p.numel),
          padded_numel(ceil_div(p.shape[0], p.ranks) * p.shape[1]),
          local_rows(p.numel / p.shape[1]),
          is_tall(p.shape[0] > p.shape[1]) {}

    std::int64_t gram_numel() const { return narrow * narrow; }
};

std::int64_t low_bytes(std::int64_t numel) {
    return bytes_of(numel, low).count;
}

/// What the function holds of an iteration when the next one begins.
struct Iteration {
    Temporary gram;
    Temporary update;
};

/// torch.addmm and @ on whole matrices, or on parts of tall ones: each rank multiplies its rows and the small
/// products are summed over the ranks where they are read.
void iterate_tall(OptimizerStep& step, const Sizes& s, Iteration& held, Temporary& ortho) {
    const std::int64_t gram_bytes = low_bytes(s.gram_numel());
    const std::int64_t with_rows = 2 * s.narrow * s.local_numel;
    const auto summed = [&] {
        if (s.ranks == 1) {
            return Temporary();
        }
        Temporary out = step.allocate(gram_bytes);
        step.exchange(CollectiveKind::all_reduce, low, s.ranks, s.gram_numel(), s.gram_numel());
        return out;
    };
    held.gram = step.allocate(gram_bytes);
    step.run(low_bytes(s.local_numel) + gram_bytes, 1, with_rows);
    {
        const Temporary gram = summed();
        held.update = step.allocate(gram_bytes);
        step.run(3 * gram_bytes, 1, 2 * s.narrow * s.gram_numel());
    }
    const Temporary update = summed();
    Temporary next = step.allocate(low_bytes(s.local_numel));
    step.run(2 * low_bytes(s.local_numel) + gram_bytes, 1, with_rows);
    ortho = std::move(next);
}

/// Parts of wide matrices: each product gathers its second operand.
void iterate_wide(OptimizerStep& step, const Sizes& s, Iteration& held, Temporary& ortho) {
    const std::int64_t local_bytes = low_bytes(s.local_numel);
    const std::int64_t all_bytes = low_bytes(s.padded_numel * s.ranks);
    const std::int64_t part_numel = s.local_rows * s.narrow;
    const std::int64_t padded_gram = ceil_div(s.narrow, s.ranks) * s.narrow;
    const auto gathered = [&](std::int64_t part, std::int64_t bytes) {
        Temporary out = step.allocate(bytes);
        step.exchange(CollectiveKind::all_gather, low, s.ranks, part, part * s.ranks);
        return out;
    };
    {
        Temporary turned = step.allocate(local_bytes);
        Temporary all = gathered(s.padded_numel, all_bytes);
        const Temporary in_order = step.allocate(all_bytes);  // gathered by rows, wanted by columns
        all.reset();
        turned.reset();
        held.gram = step.allocate(low_bytes(part_numel));
        step.run(2 * all_bytes, 2, 2 * part_numel * s.wide);
    }
    {
        const Temporary gram = gathered(padded_gram, low_bytes(padded_gram * s.ranks));
        held.update = step.allocate(low_bytes(part_numel));
        step.run(2 * low_bytes(s.gram_numel()), 1, 2 * part_numel * s.narrow);
    }
    const Temporary all = gathered(s.padded_numel, all_bytes);
    Temporary next = step.allocate(local_bytes);
    step.run(all_bytes, 1, 2 * part_numel * s.wide);
    ortho = std::move(next);
}

void matrices(OptimizerStep& step) {
    Temporary update;  // of the matrix before, until the next one is there
    for (const LocalParameter& p : step.parameters()) {
        if (!is_matrix(p)) {
            continue;
        }
        const Sizes s(p);
        step.run(passes * p.bytes(), launches);
        const Temporary mixed = step.allocate(p.bytes());
        update.reset();
        // In bfloat16 it is what `mixed` holds, until the first product takes its place.
        Temporary ortho = p.dtype == low ? Temporary() : step.allocate(low_bytes(s.local_numel));
        {
            Iteration held;
            for (int i = 0; i < iterations; ++i) {
                s.ranks == 1 || s.is_tall ? iterate_tall(step, s, held, ortho)
                                          : iterate_wide(step, s, held, ortho);
            }
        }
        update = std::move(ortho);
    }
}

void run(OptimizerStep& step) {
    matrices(step);
    std::vector<const LocalParameter*> rest;
    for (const LocalParameter& p : step.parameters()) {
        if (!is_matrix(p)) {
            rest.push_back(&p);
        }
    }
    adam::step_foreach(step, rest);
}

std::string_view refused(ParameterForm form, Implementation /*implementation*/) {
    return form == ParameterForm::flat
               ? "ValueError: Muon only supports 2D parameters whereas we found a parameter of one dimension"
               : "";
}

}  // namespace

namespace builtin::optimizer {

extern const OptimizerInfo muon;
constinit const OptimizerInfo muon{
    .name = "muon",
    .help = "torch.optim.Muon for matrices, AdamW for other parameters",
    .states = "one momentum of matrices, two moments of the rest, in the stored dtype",
    .temporaries = [](Implementation) -> std::string_view {
        return "the matrix in bfloat16, products with itself, and what ranks exchange of them";
    },
    .keep =
        [](const LocalParameter& p, Implementation) {
            return is_matrix(p) ? std::vector<StateBuffer>{{p.bytes()}}
                                : adam::keep(p, Implementation::foreach);
        },
    .step = run,
    .refused = refused,
};

}  // namespace builtin::optimizer
}  // namespace fsdplan
