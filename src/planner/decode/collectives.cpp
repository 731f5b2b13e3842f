#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "planner/decode/decode.hpp"

namespace fsdplan {
namespace {

constexpr std::array kinds{CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                           CollectiveKind::all_reduce, CollectiveKind::broadcast, CollectiveKind::reduce};

constexpr std::size_t most_collectives = 10'000;
constexpr std::int64_t most_ranks = 1 << 20U;  // that any job has

/// Letters alone, in lower case.
std::string letters(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
            out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        }
    }
    return out;
}

/// A log's lines begin with brackets too: "[rank0]:[E…".
bool is_json(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos || (text[first] != '{' && text[first] != '[')) {
        return false;
    }
    const std::size_t second = text.find_first_not_of(" \t\r\n", first + 1);
    return second == std::string_view::npos || text[second] == '{' || text[second] == '"' ||
           text[second] == ']' || text[second] == '}';
}

}  // namespace

std::optional<CollectiveKind> collective_kind(std::string_view op) {
    op = op.substr(op.rfind(':') + 1);  // npos + 1 is 0
    std::string word = letters(op);
    for (const std::string_view ending : {"base", "coalesced"}) {
        if (word.ends_with(ending)) {
            word.resize(word.size() - ending.size());
        }
    }
    const auto* const found =
        std::ranges::find_if(kinds, [&](CollectiveKind kind) { return letters(name(kind)) == word; });
    return found == kinds.end() ? std::nullopt : std::optional(*found);
}

std::vector<ObservedCollective> parse_collectives(std::string_view text, const std::string& where) {
    std::vector<ObservedCollective> found =
        is_json(text) ? collectives_in_json(text, where) : collectives_in_log(text, where);
    if (found.empty()) {
        throw Error(
            ErrorKind::input, where,
            "no collective found; expected lines such as \"[Rank 3] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=7, OpType=_ALLGATHER_BASE, NumelIn=…, NumelOut=…, …)\"");
    }
    if (found.size() > most_collectives) {
        throw Error(ErrorKind::input, where, "more than 10,000 collectives; give the lines of one timeout");
    }
    return found;
}

std::optional<std::int64_t> sharing_ranks(const std::vector<ObservedCollective>& observed) {
    std::map<std::int64_t, int> votes;
    for (const ObservedCollective& seen : observed) {
        const bool shares = !seen.kind || seen.kind == CollectiveKind::all_gather ||
                            seen.kind == CollectiveKind::reduce_scatter;
        const std::int64_t more = std::max(seen.input_numel.value_or(0), seen.output_numel.value_or(0));
        const std::int64_t less = std::min(seen.input_numel.value_or(0), seen.output_numel.value_or(0));
        const bool apart =
            less > 0 && more % less == 0 && more / less <= most_ranks && (seen.kind || more > less);
        if (shares && apart) {
            ++votes[more / less];
        }
    }
    const auto most = std::ranges::max_element(votes, {}, &std::pair<const std::int64_t, int>::second);
    return most == votes.end() ? std::nullopt : std::optional(most->first);
}

}  // namespace fsdplan
