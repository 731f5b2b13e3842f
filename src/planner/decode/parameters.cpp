#include <algorithm>
#include <array>

#include "planner/decode/decode.hpp"

namespace fsdplan {
namespace {

/// The collectives that one parameter by itself may take part in: gathered from rows, as a state dict does,
/// or reduced; whole, as when it is copied to all ranks.
std::array<CollectiveCall, 4> calls_of(const Tensor& tensor, std::int64_t ranks) {
    const std::int64_t piece = tensor.shape.empty() ? 1 : row_shard(tensor.shape, ranks, 0).padded_numel();
    const std::int64_t rows = piece > largest_total / ranks ? largest_total : piece * ranks;
    const std::int64_t numel = tensor.numel;
    using enum CollectiveKind;
    return {{{.kind = all_gather, .ranks = ranks, .input_numel = piece, .output_numel = rows},
             {.kind = reduce_scatter, .ranks = ranks, .input_numel = rows, .output_numel = piece},
             {.kind = all_reduce, .ranks = ranks, .input_numel = numel, .output_numel = numel},
             {.kind = broadcast, .ranks = ranks, .input_numel = numel, .output_numel = numel}}};
}

void add(DecodeMatch match, std::vector<DecodeMatch>& out) {
    const auto same = std::ranges::find_if(out, [&](const DecodeMatch& other) {
        return other.class_name == match.class_name && other.shape == match.shape;
    });
    if (same == out.end()) {
        out.push_back(std::move(match));
    } else {
        ++same->count;
        same->units.push_back(match.units.front());
    }
}

}  // namespace

std::vector<DecodeMatch> parameters_like(const ModuleTree& tree, std::int64_t ranks, const Sighting& seen,
                                         std::size_t sighting) {
    std::vector<DecodeMatch> out;
    std::vector<char> met(tree.tensors.size(), 0);  // a tied one counts at its first owner
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const auto module = static_cast<ModuleIndex>(m);
        for (std::size_t p = 0; p < tree.parameters(module).size(); ++p) {
            const TensorIndex t = tree.parameters(module)[p];
            const Tensor& tensor = tree.tensors[at(t)];
            if (met[at(t)] != 0 || tensor.numel == 0) {
                continue;
            }
            met[at(t)] = 1;
            for (const CollectiveCall& call : calls_of(tensor, ranks)) {
                if (!may_be(call, seen)) {
                    continue;
                }
                const std::int64_t numel = std::max(call.input_numel, call.output_numel);
                add({.sighting = sighting,
                     .op = call.kind,
                     .part = DecodedPart::parameter,
                     .class_name = std::string(short_name(tree.class_info(module).name)),
                     .units = {tree.path(module)},
                     .count = 1,
                     .numel = numel,
                     .padding = numel - tensor.numel,
                     .parameter = join_path(tree.path(module), tree.parameter_names(module)[p]),
                     .shape = tensor.shape},
                    out);
                break;
            }
        }
    }
    return out;
}

}  // namespace fsdplan
