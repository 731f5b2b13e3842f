#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

// What autograd records in forward and in which order it goes back.
//
// Nodes are numbered as they are created. Of the nodes whose consumers have all run, the one with the highest
// number runs next; the accumulation of a leaf's gradient runs at once when it is complete.
// Source: torch/csrc/autograd/engine.cpp (CompareNodeTaskTime) and AccumulateGrad's sequence number.
namespace fsdplan {

class Tape {
public:
    enum class Kind : std::uint8_t {
        compute,     ///< subject: a call
        output,      ///< the tensor that a unit's call returns; subject: that call
        inputs,      ///< FSDP2's node behind a unit's inputs; subject: the unit
        split,       ///< FSDP1's views of a flat parameter; subject: the unit
        accumulate,  ///< a leaf's .grad; subject: whatever the runtime numbers
        recompute,   ///< a reentrant checkpoint; subject: the call
        loss,        ///< where backward starts
        root,        ///< where the backward of a recomputed region starts; subject: its call
    };
    struct Node {
        Kind kind{};
        std::int32_t subject = 0;
        std::int32_t first_edge = -1;
        std::int32_t first_hook = -1;
        std::int32_t last_hook = -1;
    };
    struct Hook {
        std::int32_t action = 0;  ///< the runtime's own number
        std::int32_t subject = 0;
        std::int32_t next = -1;
    };

    std::int32_t add(Kind kind, std::int32_t subject);
    /// The gradient flows from `node` to `to`.
    void edge(std::int32_t node, std::int32_t to);
    /// Runs just before the node, in the order of registration.
    void hook(std::int32_t node, std::int32_t action, std::int32_t subject);
    /// Whether a gradient of `node` flows to `to` sooner or later.
    bool reaches(std::int32_t node, std::int32_t to) const;
    void clear();

    const Node& node(std::int32_t n) const { return nodes_[static_cast<std::size_t>(n)]; }

    /// One backward. `visitor` has hook(const Hook&) and run(node number); either may add nodes and start a
    /// backward of its own.
    template <typename Visitor>
    void backward(std::int32_t root, Visitor& visitor) {
        Task task = begin(root);
        while (!task.ready.empty()) {
            const std::int32_t n = pop(task);
            for (std::int32_t h = node(n).first_hook; h >= 0; h = hooks_[static_cast<std::size_t>(h)].next) {
                const Hook hook = hooks_[static_cast<std::size_t>(h)];
                visitor.hook(hook);
            }
            visitor.run(n);
            finish(task, n);
        }
    }

private:
    struct Edge {
        std::int32_t to;
        std::int32_t next;
    };
    struct Task {
        std::vector<std::int32_t> pending;  // consumers that have not run, by node
        std::vector<std::int64_t> ready;    // heap of priorities
    };

    static constexpr std::int64_t at_once = std::int64_t{1} << 32U;

    Task begin(std::int32_t root) const;
    std::int64_t priority(std::int32_t n) const;
    static std::int32_t pop(Task& task);
    void finish(Task& task, std::int32_t n) const;

    std::vector<Node> nodes_;
    std::vector<Edge> edges_;
    std::vector<Hook> hooks_;
};

// Every computation of a step passes here a few times.

inline std::int32_t Tape::add(Kind kind, std::int32_t subject) {
    nodes_.push_back({.kind = kind, .subject = subject});
    return static_cast<std::int32_t>(nodes_.size()) - 1;
}

inline void Tape::edge(std::int32_t node, std::int32_t to) {
    Node& n = nodes_[static_cast<std::size_t>(node)];
    edges_.push_back({to, n.first_edge});
    n.first_edge = static_cast<std::int32_t>(edges_.size()) - 1;
}

inline void Tape::hook(std::int32_t node, std::int32_t action, std::int32_t subject) {
    const auto added = static_cast<std::int32_t>(hooks_.size());
    hooks_.push_back({action, subject, -1});
    Node& n = nodes_[static_cast<std::size_t>(node)];
    if (n.first_hook < 0) {
        n.first_hook = added;
    } else {
        hooks_[static_cast<std::size_t>(n.last_hook)].next = added;
    }
    n.last_hook = added;
}

// The node's number is in the low half; accumulations come before everything else.
inline std::int64_t Tape::priority(std::int32_t n) const {
    return n + (node(n).kind == Kind::accumulate ? at_once : 0);
}

inline std::int32_t Tape::pop(Task& task) {
    std::ranges::pop_heap(task.ready);
    const std::int64_t top = task.ready.back();
    task.ready.pop_back();
    return static_cast<std::int32_t>(top % at_once);
}

inline void Tape::finish(Task& task, std::int32_t n) const {
    for (std::int32_t e = node(n).first_edge; e >= 0; e = edges_[static_cast<std::size_t>(e)].next) {
        const std::int32_t to = edges_[static_cast<std::size_t>(e)].to;
        if (--task.pending[static_cast<std::size_t>(to)] == 0) {
            task.ready.push_back(priority(to));
            std::ranges::push_heap(task.ready);
        }
    }
}

}  // namespace fsdplan
