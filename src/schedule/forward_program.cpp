#include "schedule/forward_program.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fsdplan {
namespace {

using Call = ForwardProgram::Call;

bool is_container(const ModuleClass& of) {
    const std::string_view name = short_name(of.name);
    return name == "ModuleList" || name == "ModuleDict" || name == "ParameterList" || name == "ParameterDict";
}

/// Which calls compute with which parameters.
class ParameterUses {
public:
    ParameterUses(const ModuleTree& tree, ForwardProgram& out, std::span<const TensorIndex> unread)
        : tree_(tree),
          out_(out),
          called_(tree.size(), 0),
          used_(tree.tensors.size(), -1),
          unread_(tree.tensors.size(), 0) {
        for (const Call& call : out.calls) {
            called_[at(call.module)] = 1;
        }
        for (const TensorIndex t : unread) {
            unread_[at(t)] = 1;
        }
    }

    void list() {
        std::vector<std::int32_t> callers;  // since the last leaf
        out_.parameter_begin.push_back(0);
        for (std::int32_t c = 0; c < static_cast<std::int32_t>(out_.calls.size()); ++c) {
            const Call& call = out_.calls[static_cast<std::size_t>(c)];
            if (call.leaf) {
                for (const std::int32_t caller : callers) {
                    add_own(out_.calls[static_cast<std::size_t>(caller)].module, c);
                }
                callers.clear();
                add_all(call.module, c);
            } else {
                callers.push_back(c);
            }
            out_.parameter_begin.push_back(static_cast<std::int32_t>(out_.parameter.size()));
        }
    }

    // Weights of modules that nobody calls, which another one reads.
    void add_read_elsewhere(const OperatorGraph& operators) {
        ForwardProgram listed;
        std::swap(listed.parameter, out_.parameter);
        std::swap(listed.parameter_begin, out_.parameter_begin);
        out_.parameter_begin.push_back(0);
        for (std::size_t c = 0; c < out_.calls.size(); ++c) {
            std::ranges::copy(listed.parameters(static_cast<std::int32_t>(c)),
                              std::back_inserter(out_.parameter));
            for (const MemoryEvent& event : operators.backward_of(c)) {
                const auto t = static_cast<TensorIndex>(event.index);
                if (event.kind == MemoryEvent::Kind::gradient && used_[at(t)] < 0 && unread_[at(t)] == 0) {
                    out_.parameter.push_back(t);
                }
            }
            out_.parameter_begin.push_back(static_cast<std::int32_t>(out_.parameter.size()));
        }
    }

private:
    void add_own(ModuleIndex m, std::int32_t call) {
        for (const TensorIndex t : tree_.parameters(m)) {
            if (used_[at(t)] != call && unread_[at(t)] == 0) {
                used_[at(t)] = call;
                out_.parameter.push_back(t);
            }
        }
    }

    // A leaf computes with the parameters of the modules below it too, since it does not call them (attention
    // and its output projection in torch.nn.MultiheadAttention).
    void add_all(ModuleIndex m, std::int32_t call) {
        add_own(m, call);
        for (const ModuleIndex child : tree_.children(m)) {
            if (called_[at(child)] == 0) {
                add_all(child, call);
            }
        }
    }

    const ModuleTree& tree_;
    ForwardProgram& out_;
    std::vector<char> called_;
    std::vector<std::int32_t> used_;  // last call that a tensor was listed for
    std::vector<char> unread_;
};

std::vector<ModuleIndex> in_order_of_registration(const ModuleTree& tree) {
    std::vector<char> container(tree.classes.size());
    std::ranges::transform(tree.classes, container.begin(),
                           [](const ModuleClass& of) { return is_container(of) ? 1 : 0; });
    std::vector<ModuleIndex> order;
    order.reserve(tree.size());
    for (std::size_t m = 0; m < tree.size(); ++m) {
        if (container[at(tree.class_of[m])] == 0) {
            order.push_back(static_cast<ModuleIndex>(m));
        }
    }
    return order;
}

void read_in_a_row(ForwardProgram& out) {
    std::int32_t last = -1;
    out.source_begin.push_back(0);
    for (std::size_t c = 0; c < out.calls.size(); ++c) {
        if (out.calls[c].leaf) {
            if (last >= 0) {
                out.source.push_back(last);
            }
            last = static_cast<std::int32_t>(c);
        }
        out.source_begin.push_back(static_cast<std::int32_t>(out.source.size()));
    }
    if (last >= 0) {
        out.output_from.push_back(last);
    }
}

}  // namespace

ForwardProgram forward_program(const ModuleTree& tree, const ForwardCalls& recorded,
                               std::span<const TensorIndex> unread, const OperatorGraph* operators) {
    ForwardProgram out;
    out.calls = nested_calls(tree, recorded.empty() ? in_order_of_registration(tree) : recorded.module);
    if (recorded.from_begin.empty()) {
        read_in_a_row(out);
    } else {
        out.source_begin.push_back(0);
        for (std::size_t c = 0; c < recorded.size(); ++c) {
            std::ranges::copy_if(recorded.sources(c), std::back_inserter(out.source),
                                 [](std::int32_t source) { return source >= 0; });
            out.source_begin.push_back(static_cast<std::int32_t>(out.source.size()));
        }
        std::ranges::copy_if(recorded.output_from, std::back_inserter(out.output_from),
                             [](std::int32_t source) { return source >= 0; });
    }
    ParameterUses uses(tree, out, unread);
    uses.list();
    if (operators != nullptr) {
        uses.add_read_elsewhere(*operators);
    }
    return out;
}

}  // namespace fsdplan
