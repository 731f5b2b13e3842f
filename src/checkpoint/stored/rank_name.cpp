#include "checkpoint/stored/rank_name.hpp"

#include <charconv>

namespace fsdplan {
namespace {

/// The whole text as a number; -1: it is none, or too large.
int number(std::string_view digits) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    return whole && digits.front() != '-' ? value : -1;
}

/// The number between what a name begins with and the next `after`.
int number_between(std::string_view name, std::string_view before, char after) {
    if (!name.starts_with(before)) {
        return -1;
    }
    name.remove_prefix(before.size());
    const std::size_t end = name.find(after);
    return end == std::string_view::npos ? -1 : number(name.substr(0, end));
}

}  // namespace

int rank_in_name(std::string_view name) {
    const std::string_view stem = name.substr(0, name.rfind('.'));
    const std::size_t last = stem.find_last_not_of("0123456789");
    const std::size_t begin = last == std::string_view::npos ? 0 : last + 1;
    const std::string_view digits = stem.substr(begin);
    const bool is_count = stem.substr(0, begin).ends_with("-of-");
    return digits.empty() || is_count ? -1 : number(digits);
}

int rank_of_distcp(std::string_view name) {
    return name.ends_with(".distcp") ? number_between(name, "__", '_') : -1;
}

int rank_of_shard(std::string_view name) {
    const int from_one = number_between(name, "shard-", '-');
    return from_one < 1 ? -1 : from_one - 1;
}

}  // namespace fsdplan
