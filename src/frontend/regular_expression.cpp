#define PCRE2_CODE_UNIT_WIDTH 8
#include "frontend/regular_expression.hpp"

#include <pcre2.h>

#include <array>
#include <utility>

#include "base/json.hpp"
#include "fsdplan/base.hpp"

namespace fsdplan::frontend {

struct RegularExpression::Code {
    pcre2_code* code = nullptr;
    pcre2_match_data* match = nullptr;
};

void RegularExpression::Free::operator()(Code* code) const {
    pcre2_match_data_free(code->match);
    pcre2_code_free(code->code);
    delete code;
}

namespace {

PCRE2_SPTR bytes(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

RegularExpression::RegularExpression(std::string_view expression, std::string where)
    : expression_(expression), where_(std::move(where)), code_(new Code) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_->code = pcre2_compile(bytes(expression_), expression_.size(), PCRE2_UTF, &error, &offset, nullptr);
    if (code_->code == nullptr) {
        fail(error, "is no regular expression: at character " + std::to_string(offset) + ", ");
    }
    code_->match = pcre2_match_data_create_from_pattern(code_->code, nullptr);
}

bool RegularExpression::matches_all(std::string_view text) const {
    constexpr std::uint32_t whole = PCRE2_ANCHORED | PCRE2_ENDANCHORED;
    const int result = pcre2_match(code_->code, bytes(text), text.size(), 0, whole, code_->match, nullptr);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
        fail(result, "cannot be matched against " + json::quote(text) + ": ");
    }
    return result >= 0;
}

void RegularExpression::fail(int error, std::string_view what) const {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    throw Error(
        ErrorKind::input, where_,
        json::quote(expression_) + " " + std::string(what) + reinterpret_cast<const char*>(message.data()));
}

}  // namespace fsdplan::frontend
