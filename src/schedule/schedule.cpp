#include "fsdplan/schedule.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

template <std::size_t n, typename Enum>
std::string_view name_at(const std::array<std::string_view, n>& names, Enum value) {
    return names[static_cast<std::size_t>(value)];
}

constexpr std::array<std::string_view, 14> op_names{"compute", "collective", "copy",  "to_device", "to_host",
                                                    "host",    "allocate",   "free",  "use",       "relabel",
                                                    "record",  "wait",       "block", "mark"};
constexpr std::array<std::string_view, category_count> category_names{"sharded_parameters",
                                                                      "low_precision_shard",
                                                                      "gathered_parameters",
                                                                      "gather_buffer",
                                                                      "gather_input",
                                                                      "post_forward_shard",
                                                                      "gradients",
                                                                      "reduce_input",
                                                                      "reduce_output",
                                                                      "sharded_gradients",
                                                                      "optimizer",
                                                                      "optimizer_temporaries",
                                                                      "activations",
                                                                      "logits",
                                                                      "temporaries",
                                                                      "replicated",
                                                                      "buffers",
                                                                      "input",
                                                                      "workspace"};
constexpr std::array<std::string_view, 5> pass_names{"forward", "backward", "recompute", "clip", "optimizer"};
constexpr std::array<std::string_view, 16> mark_names{"microbatch",
                                                      "forward_begin",
                                                      "forward_end",
                                                      "copy_out",
                                                      "reshard",
                                                      "reshard_post_forward",
                                                      "loss",
                                                      "pre_backward",
                                                      "post_backward",
                                                      "post_backward_end",
                                                      "post_backward_frozen",
                                                      "final_begin",
                                                      "final_end",
                                                      "backward_end",
                                                      "optimizer_step",
                                                      "zero_grad"};
constexpr std::array<std::string_view, 5> reduction_names{"none", "sum", "avg", "premulsum", "max"};

std::string unit_name(const Schedule& schedule, std::int32_t unit) {
    if (unit < 0) {
        return "-";
    }
    const std::string& path = schedule.units[static_cast<std::size_t>(unit)];
    return path.empty() ? "(root)" : path;
}

std::string subject(const Schedule& schedule, const Op& op) {
    const auto target = static_cast<std::size_t>(op.target);
    switch (op.kind) {
        case OpKind::collective: {
            const CollectiveCall& call = schedule.collectives[target];
            return std::string(name(call.kind)) + " " + std::string(name(call.dtype)) + " " +
                   std::to_string(call.input_numel) + " -> " + std::to_string(call.output_numel) + " over " +
                   std::to_string(call.ranks) + (op.prefetched != 0 ? " prefetched" : "");
        }
        case OpKind::allocate:
        case OpKind::free:
        case OpKind::use:
        case OpKind::relabel: {
            const Buffer& buffer = schedule.buffers[target];
            return "buffer " + std::to_string(op.target) + " " + std::string(name(buffer.category)) + " " +
                   std::to_string(buffer.bytes);
        }
        case OpKind::wait:
        case OpKind::block:
            return "event of " + std::to_string(op.target);
        case OpKind::mark:
            return std::string(name_at(mark_names, op.detail)) + " " + std::to_string(op.bytes);
        case OpKind::compute:
            return std::to_string(op.flops) + " flops " + std::to_string(op.bytes) + " bytes";
        default:
            return std::to_string(op.bytes) + " bytes";
    }
}

}  // namespace

std::string_view name(OpKind kind) {
    return name_at(op_names, kind);
}

std::string_view name(Category category) {
    return name_at(category_names, category);
}

std::string_view name(Pass pass) {
    return name_at(pass_names, pass);
}

std::string_view name(Mark mark) {
    return name_at(mark_names, mark);
}

std::string_view name(Reduction reduction) {
    return name_at(reduction_names, reduction);
}

Bytes CollectiveCall::full_size() const {
    return bytes_of(kind == CollectiveKind::all_gather ? output_numel : input_numel, dtype);
}

std::span<const Op> Schedule::iteration(std::size_t i) const {
    const auto begin = static_cast<std::size_t>(iteration_begin[i]);
    const std::size_t end =
        i + 1 < iteration_begin.size() ? static_cast<std::size_t>(iteration_begin[i + 1]) : ops.size();
    return std::span(ops).subspan(begin, end - begin);
}

std::string to_text(const Schedule& schedule) {
    std::string out;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        out += std::to_string(i) + "  " + std::string(name(op.kind)) + "  " +
               std::string(name_at(schedule.stream_names, op.stream)) + "  " + std::string(name(op.pass)) +
               "  " + unit_name(schedule, op.unit) + "  " + subject(schedule, op) + "\n";
    }
    return out;
}

std::string first_fault(const Schedule& schedule) {
    std::vector<char> live(schedule.buffers.size(), 0);
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        const auto fault = [&](const std::string& what) {
            return "operation " + std::to_string(i) + ": " + what;
        };
        const auto target = static_cast<std::size_t>(op.target);
        switch (op.kind) {
            case OpKind::collective:
                if (target >= schedule.collectives.size()) {
                    return fault("no such collective");
                }
                break;
            case OpKind::compute:
                if (op.target >= 0 && target >= schedule.shapes.size()) {
                    return fault("no such shape");
                }
                break;
            case OpKind::allocate:
            case OpKind::free:
            case OpKind::use:
            case OpKind::relabel: {
                if (target >= live.size()) {
                    return fault("no such buffer");
                }
                const bool allocates = op.kind == OpKind::allocate;
                if ((live[target] != 0) == allocates) {
                    return fault("buffer " + std::to_string(op.target) +
                                 (allocates ? " is live" : " is not live"));
                }
                if (allocates || op.kind == OpKind::free) {
                    live[target] = allocates ? 1 : 0;
                }
                break;
            }
            case OpKind::wait:
            case OpKind::block:
                if (op.target >= 0 && (target >= i || schedule.ops[target].kind != OpKind::record)) {
                    return fault("waits for operation " + std::to_string(op.target) + ", no earlier record");
                }
                break;
            default:
                break;
        }
        if (op.unit >= static_cast<std::int32_t>(schedule.units.size())) {
            return fault("no such unit");
        }
    }
    return "";
}

}  // namespace fsdplan
