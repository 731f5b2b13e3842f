#include <algorithm>
#include <cctype>
#include <numeric>

#include "fsdplan/base.hpp"

namespace fsdplan {
namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

/// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row[b.size()];
}

/// How unlike two names are, in thirds of an edit: letter case costs nothing, and a name that contains the
/// other (BertLayer in XLMRobertaLayer's neighbourhood, llama in llama3-8b) is nearer than its length says.
std::size_t unlikeness(std::string_view name, std::string_view candidate) {
    const std::string a = lower(name);
    const std::string b = lower(candidate);
    std::size_t cost = 3 * edit_distance(a, b);
    if (a.size() >= 3 && b.size() >= 3 &&
        (a.find(b) != std::string::npos || b.find(a) != std::string::npos)) {
        cost /= 3;
    }
    return cost;
}

constexpr std::size_t longest_compared = 128;  // the distance is quadratic in the lengths

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates,
                                       std::size_t most) {
    name = name.substr(0, longest_compared);
    struct Scored {
        std::size_t cost;
        const std::string* text;
    };
    std::vector<Scored> scored;
    for (const std::string& candidate : candidates) {
        const std::string_view shown = std::string_view(candidate).substr(0, longest_compared);
        const std::size_t cost = unlikeness(name, shown);
        // Half of the longer name has to survive.
        if (2 * cost <= 3 * std::max(name.size(), shown.size())) {
            scored.push_back({cost, &candidate});
        }
    }
    std::ranges::stable_sort(scored, {}, &Scored::cost);
    std::vector<std::string> out;
    for (const Scored& s : scored) {
        if (out.size() == most) {
            break;
        }
        if (std::ranges::find(out, *s.text) == out.end()) {
            out.push_back(*s.text);
        }
    }
    return out;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
    const std::vector<std::string> near = nearest_names(name, candidates);
    if (near.empty()) {
        return "";
    }
    std::string text = "; did you mean ";
    for (std::size_t i = 0; i < near.size(); ++i) {
        if (i > 0) {
            text += i + 1 == near.size() ? " or " : ", ";
        }
        text += '"' + near[i] + '"';
    }
    return text + "?";
}

}  // namespace fsdplan
