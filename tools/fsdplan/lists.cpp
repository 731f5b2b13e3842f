#include "lists.hpp"

#include <charconv>

#include "fsdplan/base.hpp"

namespace fsdplan::cli {

std::int64_t parse_integer(std::string_view text, std::string_view option) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
        throw Error(ErrorKind::input, std::string(option),
                    "expected a whole number, found \"" + std::string(text) + '"');
    }
    return value;
}

std::vector<std::string> parse_list(const std::vector<std::string>& texts, std::string_view option) {
    std::vector<std::string> items;
    for (const std::string& text : texts) {
        for (std::size_t begin = 0; begin <= text.size();) {
            const std::size_t end = std::min(text.find(',', begin), text.size());
            if (end == begin) {
                throw Error(ErrorKind::input, std::string(option),
                            "expected values with commas between them, found \"" + text + '"');
            }
            items.push_back(text.substr(begin, end - begin));
            begin = end + 1;
        }
    }
    return items;
}

}  // namespace fsdplan::cli
