#include "schedule/tape.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

constexpr std::int64_t at_once = std::int64_t{1} << 32U;

}  // namespace

std::int32_t Tape::add(Kind kind, std::int32_t subject) {
    nodes_.push_back({.kind = kind, .subject = subject});
    return static_cast<std::int32_t>(nodes_.size()) - 1;
}

void Tape::edge(std::int32_t node, std::int32_t to) {
    Node& n = nodes_[static_cast<std::size_t>(node)];
    edges_.push_back({to, n.first_edge});
    n.first_edge = static_cast<std::int32_t>(edges_.size()) - 1;
}

void Tape::hook(std::int32_t node, std::int32_t action, std::int32_t subject) {
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

bool Tape::reaches(std::int32_t node, std::int32_t to) const {
    std::vector<char> seen(nodes_.size(), 0);
    std::vector<std::int32_t> open{node};
    while (!open.empty()) {
        const std::int32_t n = open.back();
        open.pop_back();
        for (std::int32_t e = nodes_[static_cast<std::size_t>(n)].first_edge; e >= 0;
             e = edges_[static_cast<std::size_t>(e)].next) {
            const std::int32_t next = edges_[static_cast<std::size_t>(e)].to;
            if (next == to) {
                return true;
            }
            if (seen[static_cast<std::size_t>(next)] == 0) {
                seen[static_cast<std::size_t>(next)] = 1;
                open.push_back(next);
            }
        }
    }
    return false;
}

void Tape::clear() {
    nodes_.clear();
    edges_.clear();
    hooks_.clear();
}

Tape::Task Tape::begin(std::int32_t root) const {
    Task task;
    task.pending.assign(nodes_.size(), 0);
    std::vector<std::int32_t> open{root};
    std::vector<char> seen(nodes_.size(), 0);
    while (!open.empty()) {
        const std::int32_t n = open.back();
        open.pop_back();
        for (std::int32_t e = nodes_[static_cast<std::size_t>(n)].first_edge; e >= 0;
             e = edges_[static_cast<std::size_t>(e)].next) {
            const auto next = static_cast<std::size_t>(edges_[static_cast<std::size_t>(e)].to);
            ++task.pending[next];
            if (seen[next] == 0) {
                seen[next] = 1;
                open.push_back(static_cast<std::int32_t>(next));
            }
        }
    }
    task.ready.push_back(priority(root));
    return task;
}

// The node's number is in the low half; accumulations come before everything else.
std::int64_t Tape::priority(std::int32_t n) const {
    return n + (node(n).kind == Kind::accumulate ? at_once : 0);
}

std::int32_t Tape::pop(Task& task) {
    std::ranges::pop_heap(task.ready);
    const std::int64_t top = task.ready.back();
    task.ready.pop_back();
    return static_cast<std::int32_t>(top % at_once);
}

void Tape::finish(Task& task, std::int32_t n) const {
    for (std::int32_t e = node(n).first_edge; e >= 0; e = edges_[static_cast<std::size_t>(e)].next) {
        const std::int32_t to = edges_[static_cast<std::size_t>(e)].to;
        if (--task.pending[static_cast<std::size_t>(to)] == 0) {
            task.ready.push_back(priority(to));
            std::ranges::push_heap(task.ready);
        }
    }
}

}  // namespace fsdplan
