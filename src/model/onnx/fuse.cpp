#include "model/onnx/fuse.hpp"

#include <algorithm>
#include <utility>

namespace fsdplan::onnx {
namespace {

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

class Rewriter {
public:
    explicit Rewriter(Graph& graph)
        : graph_(graph), producer_(graph.names.size(), -1), uses_(graph.names.size()) {
        for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
            for (const ValueId v : graph.nodes[n].outputs) {
                if (v >= 0) {
                    producer_[at(v)] = static_cast<std::int32_t>(n);
                }
            }
            for (const ValueId v : graph.nodes[n].inputs) {
                if (v >= 0) {
                    uses_[at(v)].push_back(static_cast<std::int32_t>(n));
                }
            }
        }
        of_data_.resize(graph.names.size(), 0);
        for (const ValueId v : graph.inputs) {
            of_data_[at(v)] = 1;
        }
        for (const Node& node : graph.nodes) {
            const bool reads = node.op != "Shape" && std::ranges::any_of(node.inputs, [&](ValueId v) {
                                   return v >= 0 && of_data_[at(v)] != 0;
                               });
            for (const ValueId v : node.outputs) {
                if (v >= 0) {
                    of_data_[at(v)] = reads ? 1 : 0;
                }
            }
        }
        const std::vector<char> host = host_nodes(graph);
        host_.resize(graph.names.size(), 0);
        for (std::size_t n = 0; n < host.size(); ++n) {
            for (const ValueId v : graph.nodes[n].outputs) {
                if (v >= 0) {
                    host_[at(v)] = host[n];
                }
            }
        }
    }

    void rewrite() {
        for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
            Node& node = graph_.nodes[n];
            if (node.op == "Softmax") {
                fuse_attention(node);
            } else if (node.op == "Erf") {
                fuse_gelu(node);
            } else if (node.op == "Sigmoid") {
                fuse_silu(node);
            } else if (node.op == "Sqrt") {
                fuse_rsqrt(node);
            } else if (node.op == "MatMul") {
                fuse_linear(node);
            } else if (node.op == "Gemm") {
                fuse_gemm(node);
            } else if (node.op == "Dropout") {
                fuse_dropout(node);
            } else if (node.op == "SplitToSequence") {
                fuse_split(node);
            }
        }
        drop_unused();
    }

private:
    Node* maker(ValueId v) {
        return v >= 0 && producer_[at(v)] >= 0 ? &graph_.nodes[at(producer_[at(v)])] : nullptr;
    }
    Node* maker(ValueId v, std::string_view op) {
        Node* node = maker(v);
        return node != nullptr && node->op == op ? node : nullptr;
    }
    /// The node that uses a value, when it is the only one.
    Node* user(ValueId v) {
        return uses_[at(v)].size() == 1 ? &graph_.nodes[at(uses_[at(v)].front())] : nullptr;
    }
    Node* user(ValueId v, std::string_view op) {
        Node* node = user(v);
        return node != nullptr && node->op == op ? node : nullptr;
    }
    bool is_scalar(ValueId v) const {
        const Constant* constant = graph_.constant(v);
        return constant != nullptr ? constant->numel == 1 : v >= 0 && host_[at(v)] != 0;
    }
    /// The operand of a binary node that is no scalar, when the other one is; else -1.
    ValueId besides_scalar(const Node& node) const {
        if (node.inputs.size() != 2 || is_scalar(node.inputs[0]) == is_scalar(node.inputs[1])) {
            return -1;
        }
        return is_scalar(node.inputs[0]) ? node.inputs[1] : node.inputs[0];
    }
    ValueId other_operand(const Node& node, ValueId one) const {
        return node.inputs.size() != 2 ? -1 : node.inputs[0] == one ? node.inputs[1] : node.inputs[0];
    }

    static void become(Node& node, std::string op, std::vector<ValueId> inputs) {
        node.op = std::move(op);
        node.inputs = std::move(inputs);
        node.attributes.clear();
    }

    /// A matrix that the model holds, maybe seen through a Transpose.
    ValueId weight_behind(ValueId v, bool& transposed) {
        const auto is_matrix = [&](ValueId w) {
            const Constant* constant = graph_.constant(w);
            return constant != nullptr && constant->shape.size() == 2 && is_floating_point(constant->dtype);
        };
        transposed = true;
        if (is_matrix(v)) {
            return v;
        }
        const Node* view = maker(v, "Transpose");
        if (view != nullptr && is_matrix(view->input(0))) {
            transposed = false;
            return view->input(0);
        }
        return -1;
    }

    void fuse_linear(Node& product) {
        bool transposed = true;
        if (product.inputs.size() != 2 || product.outputs.front() < 0) {
            return;
        }
        const ValueId weight = weight_behind(product.inputs[1], transposed);
        if (weight < 0) {
            return;
        }
        std::vector<ValueId> inputs{product.inputs[0], weight};
        Node* last = &product;
        if (Node* sum = user(product.outputs.front(), "Add")) {
            const ValueId bias = other_operand(*sum, product.outputs.front());
            const Constant* constant = graph_.constant(bias);
            if (constant != nullptr && constant->shape.size() == 1 && constant->numel > 1) {
                inputs.push_back(bias);
                last = sum;
            }
        }
        const bool folded = transposed && is_generated(graph_.name(weight));
        become(*last, "linear", std::move(inputs));
        last->attributes["transposed"].i = transposed && !folded ? 1 : 0;
        last->attributes["folded"].i = folded ? 1 : 0;
    }

    void fuse_gemm(Node& gemm) {
        const Constant* weight = graph_.constant(gemm.input(1));
        if (weight == nullptr || weight->shape.size() != 2 || gemm.integer("transA", 0) != 0) {
            return;
        }
        const bool transposed = gemm.integer("transB", 0) == 0;
        std::vector<ValueId> inputs{gemm.inputs[0], gemm.inputs[1]};
        if (gemm.input(2) >= 0) {
            inputs.push_back(gemm.input(2));
        }
        become(gemm, "linear", std::move(inputs));
        gemm.attributes["transposed"].i = transposed ? 1 : 0;
    }

    /// k behind its transposed view: a Transpose, or one between two Reshapes.
    ValueId before_transpose(ValueId v) {
        const Node* view = maker(v);
        if (view != nullptr && view->op == "Reshape") {
            view = maker(view->input(0));
            const Node* flat =
                view != nullptr && view->op == "Transpose" ? maker(view->input(0), "Reshape") : nullptr;
            return flat == nullptr ? -1 : flat->input(0);
        }
        return view != nullptr && view->op == "Transpose" ? view->input(0) : -1;
    }

    /// What a boolean mask was made of the scores' addend, or the addend itself.
    ValueId mask_behind(ValueId addend) {
        const Node* choice = maker(addend, "Where");
        const bool of_scalars =
            choice != nullptr && is_scalar(choice->input(1)) && is_scalar(choice->input(2));
        return of_scalars ? choice->input(0) : addend;
    }

    void fuse_attention(const Node& softmax) {
        ValueId scores = softmax.input(0);
        ValueId mask = -1;
        if (const Node* sum = maker(scores, "Add"); sum != nullptr && sum->inputs.size() == 2) {
            const bool first = maker(sum->inputs[0], "MatMul") != nullptr;
            scores = sum->inputs[first ? 0 : 1];
            mask = mask_behind(sum->inputs[first ? 1 : 0]);
        }
        const Node* product = maker(scores, "MatMul");
        if (product == nullptr || product->inputs.size() != 2) {
            return;
        }
        const Node* scaled_q = maker(product->inputs[0], "Mul");
        const Node* scaled_k = maker(product->inputs[1], "Mul");
        if (scaled_q == nullptr || scaled_k == nullptr) {
            return;
        }
        const ValueId q = besides_scalar(*scaled_q);
        const ValueId k = before_transpose(besides_scalar(*scaled_k));
        Node* mixed = q < 0 || k < 0 ? nullptr : product_with_values(softmax.outputs.front());
        if (mixed == nullptr) {
            return;
        }
        const std::vector<std::int64_t> order = maker(besides_scalar(*scaled_k))->integers("perm");
        if (mask >= 0 && is_left_out(mask, *mixed)) {
            ++graph_.masks_left_out;
            mask = -1;
        }
        become(*mixed, "attention", {q, k, mixed->inputs[1], mask});
        mixed->attributes["k_order"].ints = order;
    }

    // While it is traced, transformers builds masks that say nothing but "causal" or "everything" (sdpa_mask
    // in masking_utils.py); in training it leaves them out, so that flash attention can run.
    bool is_left_out(ValueId mask, const Node& node) const {
        const bool of_transformers = std::ranges::any_of(
            node.scopes, [](const Scope& scope) { return scope.class_name.starts_with("transformers."); });
        return of_transformers && of_data_[at(mask)] == 0;
    }

    /// The product of the shares with v; rows without a share and dropout may stand between.
    Node* product_with_values(ValueId shares) {
        constexpr int most_between = 3;
        for (int i = 0; i <= most_between; ++i) {
            ValueId next = -1;
            for (const std::int32_t n : uses_[at(shares)]) {
                Node& node = graph_.nodes[at(n)];
                if (node.op == "MatMul" && node.inputs.size() == 2 && node.inputs[0] == shares) {
                    return &node;
                }
                const bool hides_rows = node.op == "Where" && node.input(2) == shares;
                if (hides_rows || (node.op == "Dropout" && node.input(0) == shares)) {
                    next = node.outputs.front();
                }
            }
            if (next < 0) {
                break;
            }
            shares = next;
        }
        return nullptr;
    }

    // x / sqrt(2), erf, + 1, * x, * 0.5.
    void fuse_gelu(const Node& erf) {
        const Node* scaled = maker(erf.input(0));
        const ValueId x =
            scaled != nullptr && (scaled->op == "Div" || scaled->op == "Mul") ? besides_scalar(*scaled) : -1;
        const Node* plus_one = user(erf.outputs.front(), "Add");
        Node* product = x < 0 || plus_one == nullptr ? nullptr : user(plus_one->outputs.front(), "Mul");
        if (product == nullptr) {
            return;
        }
        const ValueId other = other_operand(*product, plus_one->outputs.front());
        if (other == x) {
            Node* half = user(product->outputs.front(), "Mul");
            if (half != nullptr && besides_scalar(*half) == product->outputs.front()) {
                become(*half, "gelu", {x});
            }
            return;
        }
        const Node* half = maker(other, "Mul");
        if (half != nullptr && besides_scalar(*half) == x) {
            become(*product, "gelu", {x});
        }
    }

    void fuse_silu(const Node& sigmoid) {
        Node* product = user(sigmoid.outputs.front(), "Mul");
        if (product != nullptr && other_operand(*product, sigmoid.outputs.front()) == sigmoid.input(0)) {
            become(*product, "silu", {sigmoid.input(0)});
        }
    }

    void fuse_rsqrt(const Node& root) {
        Node* inverse = user(root.outputs.front());
        if (inverse == nullptr || host_[at(root.outputs.front())] != 0) {
            return;
        }
        const bool divides =
            inverse->op == "Div" && inverse->input(1) == root.outputs.front() && is_scalar(inverse->input(0));
        if (inverse->op == "Reciprocal" || divides) {
            become(*inverse, "rsqrt", {root.input(0)});
        }
    }

    // Dropout with probability 0, or outside of training.
    void fuse_dropout(Node& dropout) {
        const Constant* probability = graph_.constant(dropout.input(1));
        const Constant* trains = graph_.constant(dropout.input(2));
        const auto is = [](const Constant* constant, std::int64_t number) {
            return constant != nullptr && constant->numbers &&
                   *constant->numbers == std::vector<std::int64_t>{number};
        };
        if (!is(trains, 1) || is(probability, 0)) {
            become(dropout, "Identity", {dropout.input(0)});
        }
    }

    // torch.split gives a list, of which the model takes members by number.
    void fuse_split(Node& split) {
        constexpr std::int64_t most_parts = 1024;
        std::vector<ValueId> parts;
        for (const std::int32_t n : uses_[at(split.outputs.front())]) {
            const Node& user = graph_.nodes[at(n)];
            const Constant* place = graph_.constant(user.input(1));
            if (user.op != "SequenceAt" || place == nullptr || !place->numbers ||
                place->numbers->size() != 1 || place->numbers->front() < 0 ||
                place->numbers->front() >= most_parts) {
                return;
            }
            const std::size_t i = at(place->numbers->front());
            parts.resize(std::max(parts.size(), i + 1), -1);
            if (parts[i] >= 0) {
                return;
            }
            parts[i] = user.outputs.front();
        }
        for (const std::int32_t n : uses_[at(split.outputs.front())]) {
            graph_.nodes[at(n)].outputs.clear();
        }
        split.op = "Split";
        split.outputs = std::move(parts);
    }

    void drop_unused() {
        std::vector<char> needed(graph_.names.size(), 0);
        for (const ValueId v : graph_.outputs) {
            needed[at(v)] = 1;
        }
        std::vector<char> keep(graph_.nodes.size(), 0);
        for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
            const Node& node = graph_.nodes[n];
            const bool is_needed =
                std::ranges::any_of(node.outputs, [&](ValueId v) { return v >= 0 && needed[at(v)] != 0; });
            keep[n] = is_needed ? 1 : 0;
            for (const ValueId v : node.inputs) {
                if (is_needed && v >= 0) {
                    needed[at(v)] = 1;
                }
            }
        }
        std::size_t n = 0;
        std::erase_if(graph_.nodes, [&](const Node&) { return keep[n++] == 0; });
    }

    Graph& graph_;
    std::vector<std::int32_t> producer_;           // node of each value
    std::vector<std::vector<std::int32_t>> uses_;  // nodes of each value
    std::vector<char> host_;                       // of each value
    std::vector<char> of_data_;                    // values that depend on what the inputs hold
};

}  // namespace

std::vector<char> host_nodes(const Graph& graph) {
    std::vector<char> on_host(graph.names.size(), 0);
    for (const auto& [v, constant] : graph.constants) {
        on_host[at(v)] = constant.numel == 1 || constant.numbers.has_value() ? 1 : 0;
    }
    std::vector<char> out;
    for (const Node& node : graph.nodes) {
        const auto known = [&](ValueId v) { return v < 0 || on_host[at(v)] != 0; };
        const bool of_type = node.op == "CastLike" && known(node.input(0));
        const bool makes_tensor = node.op == "Range" || node.inputs.empty();
        const bool host = node.op == "Shape" || node.op == "Size" || of_type ||
                          (!makes_tensor && std::ranges::all_of(node.inputs, known));
        for (const ValueId v : node.outputs) {
            if (v >= 0) {
                on_host[at(v)] = host ? 1 : 0;
            }
        }
        out.push_back(host ? 1 : 0);
    }
    return out;
}

bool is_generated(std::string_view name) {
    constexpr std::string_view value = "val_";
    const bool numbered = name.starts_with(value) &&
                          name.find_first_not_of("0123456789", value.size()) == std::string_view::npos;
    return numbered || name.starts_with("onnx::") || name.starts_with('/') ||
           name.find_first_not_of("0123456789") == std::string_view::npos;
}

void fuse(Graph& graph) {
    Rewriter(graph).rewrite();
}

}  // namespace fsdplan::onnx
