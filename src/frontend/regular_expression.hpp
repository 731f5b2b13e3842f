#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace fsdplan::frontend {

// A regular expression of Python's `re`, as far as Perl's are the same. A hostile one ends in an Error: PCRE2
// keeps its work on the heap and within limits, where std::regex recurses.
class RegularExpression {
public:
    // `where` names the setting in messages. Throws Error when `expression` is none.
    RegularExpression(std::string_view expression, std::string where);

    // re.fullmatch.
    bool matches_all(std::string_view text) const;

private:
    struct Code;
    struct Free {
        void operator()(Code* code) const;
    };
    [[noreturn]] void fail(int error, std::string_view what) const;

    std::string expression_;
    std::string where_;
    std::unique_ptr<Code, Free> code_;
};

}  // namespace fsdplan::frontend
