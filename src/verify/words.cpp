#include "verify/words.hpp"

namespace fsdplan {

std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) {
        out += (out.empty() ? "" : " ") + word;
    }
    return out;
}

std::string joined(std::span<const std::int64_t> numbers) {
    std::vector<std::string> words;
    for (const std::int64_t number : numbers) {
        words.push_back(std::to_string(number));
    }
    return joined(words);
}

std::string joined(const json::Value& list) {
    std::vector<std::string> words;
    for (const json::Value value : list.elements()) {
        words.push_back(word_of(value));
    }
    return joined(words);
}

std::string word_of(const json::Value& value) {
    return value.is_string() ? std::string(value.string()) : value.shown();
}

std::string json_text(const json::Value& value) {
    std::string out;
    if (value.is_array()) {
        for (const json::Value element : value.elements()) {
            out += (out.empty() ? "" : ", ") + json_text(element);
        }
        return "[" + out + "]";
    }
    if (value.is_object()) {
        for (const json::Value member : value.members()) {
            out += (out.empty() ? "" : ", ") + json::quote(member.key()) + ": " + json_text(member);
        }
        return "{" + out + "}";
    }
    return value.is_string() ? json::quote(value.string()) : value.shown();
}

}  // namespace fsdplan
