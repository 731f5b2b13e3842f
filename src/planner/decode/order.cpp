#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/quantity.hpp"
#include "planner/decode/decode.hpp"

namespace fsdplan {
namespace {

using Ranks = std::vector<const ObservedCollective*>;

/// "_ALLGATHER_BASE 54,528,000 to 218,112,000, number 7"
std::string shown(const ObservedCollective& seen) {
    std::string text = seen.op.empty() ? std::string("a collective") : seen.op;
    if (seen.input_numel && seen.output_numel) {
        text += " " + show_integer(*seen.input_numel) + " to " + show_integer(*seen.output_numel);
    } else if (seen.input_numel) {
        text += " of " + show_integer(*seen.input_numel);
    }
    return text + (seen.sequence ? ", number " + std::to_string(*seen.sequence) : std::string());
}

std::string shown_rank(const ObservedCollective& seen) {
    return seen.rank ? "rank " + std::to_string(*seen.rank) : std::string("another rank");
}

bool same_work(const ObservedCollective& a, const ObservedCollective& b) {
    const auto agree = [](const auto& x, const auto& y) { return !x || !y || *x == *y; };
    return a.op == b.op && agree(a.input_numel, b.input_numel) && agree(a.output_numel, b.output_numel);
}

bool same_number(const ObservedCollective& a, const ObservedCollective& b) {
    return !a.sequence || !b.sequence || *a.sequence == *b.sequence;
}

/// The oldest collective of each rank: what it waits for.
Ranks oldest(const Ranks& seen) {
    Ranks out;
    std::map<std::int64_t, std::size_t> place;
    for (const ObservedCollective* one : seen) {
        const auto [known, is_new] =
            one->rank ? place.emplace(*one->rank, out.size()) : std::pair(place.end(), true);
        if (is_new) {
            out.push_back(one);
        } else if (const ObservedCollective*& other = out[known->second];
                   one->sequence && other->sequence && *one->sequence < *other->sequence) {
            other = one;
        }
    }
    return out;
}

std::string compared(const Ranks& ranks, bool& in_step) {
    const ObservedCollective& first = *ranks.front();
    const auto other = std::ranges::find_if(ranks, [&](const ObservedCollective* seen) {
        return !same_work(first, *seen) || !same_number(first, *seen);
    });
    in_step = other == ranks.end();
    if (in_step) {
        return std::to_string(ranks.size()) + " ranks wait for the same " + shown(first);
    }
    const ObservedCollective& odd = **other;
    const std::string both =
        shown_rank(first) + " waits for " + shown(first) + "; " + shown_rank(odd) + " for " + shown(odd);
    if (!same_work(first, odd)) {
        return both + (first.sequence && first.sequence == odd.sequence
                           ? ": they issued different sequences of collectives"
                           : ": they are at different places");
    }
    const std::int64_t apart = *first.sequence - *odd.sequence;
    return both + ": " + shown_rank(apart > 0 ? odd : first) + " is " + std::to_string(std::abs(apart)) +
           " behind";
}

}  // namespace

RankOrder rank_order(const std::vector<ObservedCollective>& observed) {
    const bool groups_known =
        std::ranges::none_of(observed, [](const ObservedCollective& seen) { return seen.group.empty(); });
    std::map<std::string, Ranks> groups;
    for (const ObservedCollective& seen : observed) {
        groups[groups_known ? seen.group : std::string()].push_back(&seen);
    }
    RankOrder out;
    for (const auto& [group, seen] : groups) {
        const Ranks ranks = oldest(seen);
        if (ranks.size() < 2) {
            continue;
        }
        bool in_step = true;
        const std::string text = compared(ranks, in_step);
        out.in_step = out.in_step.value_or(true) && in_step;
        out.text += (out.text.empty() ? "" : "; ") +
                    (groups.size() > 1 ? "in group " + group + " " : std::string()) + text;
    }
    if (!out.in_step) {
        out.text = groups.size() > 1 ? "each process group has one rank in these lines"
                                     : "one rank is in these lines";
    }
    return out;
}

}  // namespace fsdplan
