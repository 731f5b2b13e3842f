#include "model/recorded_operators.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "model/nested_calls.hpp"
#include "operators/parts.hpp"

namespace fsdplan {
namespace {

using Kind = MemoryEvent::Kind;

constexpr std::int64_t largest_bytes = std::int64_t{1} << 53U;

/// The rows as events; calls are positions in forward_order.
struct Recorded {
    std::vector<std::string> names;
    std::vector<Storage> storages;
    std::vector<Operator> operators;
    std::vector<MemoryEvent> forward;
    std::vector<std::int32_t> forward_call;  // of each event
    std::vector<MemoryEvent> backward;
    std::vector<std::int32_t> backward_of;  // forward event that each belongs to
    std::vector<char> trainable;            // of each tensor
    std::optional<DType> dtype;             // of the parameters, if they share one
    std::int64_t batch = 0;
    std::int64_t sequence = 0;
    std::string device;
    std::string loss;  // what backward started from, in words
};

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

class Rows {
public:
    Rows(const json::Value& root, const TensorOfId& tensor_of, std::size_t calls)
        : root_(root), tensor_of_(tensor_of), calls_(static_cast<std::int64_t>(calls)) {}

    Recorded read() {
        root_.allow_only({"device", "inputs", "loss", "names", "storages", "forward", "backward"});
        out_.device = root_.at("device").string();
        out_.loss = root_.at("loss").string();
        out_.names = root_.at("names").strings();
        for (const json::Value bytes : root_.at("storages").elements()) {
            out_.storages.push_back({.bytes = bytes.integer(0, largest_bytes)});
        }
        same_as_.resize(out_.storages.size());
        for (std::size_t s = 0; s < same_as_.size(); ++s) {
            same_as_[s] = static_cast<std::int32_t>(s);
        }
        born_.resize(out_.storages.size(), nowhere);
        read_shapes();
        for (const json::Value row : root_.at("forward").elements()) {
            read_forward(row);
        }
        for (const json::Value row : root_.at("backward").elements()) {
            read_backward(row);
        }
        return std::move(out_);
    }

private:
    static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

    void read_shapes() {
        for (const json::Value input : root_.at("inputs").elements()) {
            const json::Value shape = *input.elements().begin();
            std::vector<std::int64_t> sizes;
            for (const json::Value size : shape.elements()) {
                sizes.push_back(size.integer(0, largest_bytes));
            }
            if (out_.batch == 0 && !sizes.empty()) {
                out_.batch = sizes[0];
                out_.sequence = sizes.size() > 1 ? sizes[1] : 1;
            }
        }
    }

    std::int32_t storage(const json::Value& id) const {
        return static_cast<std::int32_t>(id.integer(0, static_cast<std::int64_t>(out_.storages.size()) - 1));
    }

    Operator common(const json::Value& row) const {
        Operator op;
        op.name = static_cast<std::int32_t>(
            row.at("op").integer(0, static_cast<std::int64_t>(out_.names.size()) - 1));
        const auto number = [&](std::string_view key) {
            const auto value = row.find(key);
            return value ? value->integer(0, largest_bytes) : 0;
        };
        op.flops = number("flops");
        op.bytes = number("bytes");
        if (out_.names[at(op.name)].find("scaled_dot_product") != std::string::npos) {
            op.kind = Operator::Kind::attention;
        }
        return op;
    }

    void allocate(const json::Value& id, std::vector<MemoryEvent>& events) {
        const std::int32_t s = storage(id);
        if (born_[at(s)] != nowhere) {
            throw Error(ErrorKind::input, id.where(), "storage " + id.shown() + " is allocated twice");
        }
        born_[at(s)] = events.size();
        events.push_back({Kind::allocate, s});
    }

    void each(const json::Value& row, std::string_view key,
              const std::function<void(const json::Value&)>& visit) const {
        if (const auto list = row.find(key)) {
            for (const json::Value entry : list->elements()) {
                visit(entry);
            }
        }
    }

    void read_forward(const json::Value& row) {
        row.allow_only({"op", "call", "flops", "bytes", "new", "saved", "gone"});
        const auto call = static_cast<std::int32_t>(row.at("call").integer(-1, calls_ - 1));
        Operator op = common(row);
        op.call = call;
        rows_.push_back(out_.forward.size());
        each(row, "new", [&](const json::Value& id) { allocate(id, out_.forward); });
        out_.forward.push_back({Kind::run, static_cast<std::int32_t>(out_.operators.size())});
        out_.operators.push_back(op);
        std::vector<std::int32_t> saved;
        each(row, "saved", [&](const json::Value& id) {
            saved.push_back(storage(id));
            out_.forward.push_back({Kind::save, saved.back()});
        });
        saved_.push_back(std::move(saved));
        each(row, "gone", [&](const json::Value& id) { out_.forward.push_back({Kind::drop, storage(id)}); });
        out_.forward_call.resize(out_.forward.size(), call);
    }

    void read_backward(const json::Value& row) {
        row.allow_only({"op", "of", "re", "flops", "bytes", "new", "gone", "released", "gradient", "reuses"});
        const auto last = static_cast<std::int64_t>(rows_.size()) - 1;
        const std::int64_t of = row.at("of").integer(0, last);
        Operator op = common(row);
        op.call = out_.operators[at(of)].call;
        const auto reused = row.find("reuses");
        if (reused) {
            same_as_[at(storage(*row.at("new").elements().begin()))] = same_as_[at(storage(*reused))];
        } else {
            each(row, "new", [&](const json::Value& id) { allocate(id, out_.backward); });
        }
        out_.backward.push_back({Kind::run, static_cast<std::int32_t>(out_.operators.size())});
        out_.operators.push_back(op);
        each(row, "gradient", [&](const json::Value& pair) { become_gradient(pair); });
        each(row, "gone", [&](const json::Value& id) {
            if (!reused || storage(id) != storage(*reused)) {
                out_.backward.push_back({Kind::drop, same_as_[at(storage(id))]});
            }
        });
        each(row, "released", [&](const json::Value& forward_row) {
            for (const std::int32_t s : saved_[at(forward_row.integer(0, last))]) {
                out_.backward.push_back({Kind::release, s});
            }
        });
        out_.backward_of.resize(out_.backward.size(), static_cast<std::int32_t>(rows_[at(of)]));
    }

    // Its memory is the runtime's from the beginning.
    void become_gradient(const json::Value& pair) {
        if (pair.size() != 2) {
            pair.fail("a storage and a tensor");
        }
        const std::int32_t s = same_as_[at(storage(*pair.elements().begin()))];
        const TensorIndex tensor = tensor_of_(*++pair.elements().begin());
        const std::size_t born = born_[at(s)];
        if (born < out_.backward.size() && out_.backward[born] == MemoryEvent{Kind::allocate, s}) {
            out_.backward[born] = {Kind::gradient, static_cast<std::int32_t>(tensor)};
        } else {
            out_.backward.push_back({Kind::gradient, static_cast<std::int32_t>(tensor)});
        }
    }

    json::Value root_;
    const TensorOfId& tensor_of_;
    std::int64_t calls_;
    Recorded out_;
    std::vector<std::size_t> rows_;                 // first event of each forward row
    std::vector<std::vector<std::int32_t>> saved_;  // by each forward row
    std::vector<std::int32_t> same_as_;             // storages that are another's memory
    std::vector<std::size_t> born_;                 // event that allocates each
};

bool describes(const Recorded& recorded, const ModuleTree& tree, const Workload& workload) {
    if (workload.loss.kind != Loss::Kind::cross_entropy ||
        workload.attention != AttentionImplementation::sdpa || workload.batch != recorded.batch ||
        workload.sequence != recorded.sequence ||
        (workload.compute && recorded.dtype && workload.compute != recorded.dtype)) {
        return false;
    }
    return std::ranges::equal(tree.tensors, recorded.trainable, [](const Tensor& t, char trainable) {
        return t.requires_grad == (trainable != 0);
    });
}

// PyTorch's counter does not know the CPU's attention.
bool counts_no_attention(const Recorded& recorded) {
    return std::ranges::any_of(recorded.operators, [](const Operator& op) {
        return op.kind == Operator::Kind::attention && op.flops == 0;
    });
}

OperatorGraph graph_of(const Recorded& recorded, const ModuleTree& tree, const Workload& workload) {
    OperatorGraph out;
    out.workload = workload;
    if (!describes(recorded, tree, workload)) {
        return out;
    }
    out.calls = tree.calls;
    out.names = recorded.names;
    out.storages = recorded.storages;
    out.operators = recorded.operators;
    out.forward = recorded.forward;
    out.backward = recorded.backward;
    cut_into_parts(out, nested_calls(tree, out.calls.module), recorded.forward_call, recorded.backward_of);
    pass_what_is_held(out);
    if (const std::string fault = first_fault(out); !fault.empty()) {
        throw Error(ErrorKind::input, tree.name + ": operators", fault);
    }
    out.notes.push_back("the loss is that of the export: " + recorded.loss);
    if (recorded.device != "cuda") {
        out.notes.push_back("the operators are those of the " + recorded.device +
                            ", which differ a little from a GPU's");
    }
    if (counts_no_attention(recorded)) {
        out.notes.push_back("the export counts no FLOPs of attention, whose time is too short by them");
    }
    return out;
}

}  // namespace

void read_operators(const json::Value& operators, const TensorOfId& tensor_of, ModelGraph& graph) {
    auto recorded = std::make_shared<Recorded>(Rows(operators, tensor_of, graph.calls.size()).read());
    bool one_dtype = true;
    for (const Tensor& tensor : graph.tensors) {
        recorded->trainable.push_back(tensor.requires_grad ? 1 : 0);
        if (tensor.requires_grad) {
            one_dtype = one_dtype && recorded->dtype.value_or(tensor.dtype) == tensor.dtype;
            recorded->dtype = tensor.dtype;
        }
    }
    if (!one_dtype) {
        recorded->dtype.reset();
    }
    graph.recorded_batch = recorded->batch;
    graph.longest_sequence = recorded->sequence;
    graph.operators = [recorded](const ModuleTree& tree, const Workload& workload) {
        return graph_of(*recorded, tree, workload);
    };
}

}  // namespace fsdplan
