#include "schedule/tape.hpp"

namespace fsdplan {

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

}  // namespace fsdplan
