#include "frontend/toml_file.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <sstream>

#include "fsdplan/base.hpp"

namespace fsdplan::frontend {
namespace {

// A table for each dot of a key: toml++ bounds the nesting of values, but it recurses over these.
constexpr std::ptrdiff_t most_dots = 2000;

}  // namespace

std::string toml_as_json(const std::string& text, const std::string& file) {
    if (std::ranges::count(text, '.') > most_dots) {
        throw Error(ErrorKind::input, file,
                    "has more than " + std::to_string(most_dots) + " dots, which no settings need");
    }
    try {
        std::ostringstream out;
        out << toml::json_formatter(
            toml::parse(text, file),
            toml::json_formatter::default_flags | toml::format_flags::quote_infinities_and_nans);
        return out.str();
    } catch (const toml::parse_error& error) {
        std::string what(error.description());
        for (char& c : what) {
            c = c == '\n' ? ' ' : c;
        }
        throw Error(ErrorKind::input, file + ":" + std::to_string(error.source().begin.line),
                    "is no TOML: " + what);
    }
}

}  // namespace fsdplan::frontend
