#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "fsdplan/frontend.hpp"

// Python's conversions, as far as settings meet them.
namespace fsdplan::frontend {

/// Thrown inside a front end where Python would raise; caught where its answer leaves it.
struct Refused {
    FrontendError error;
};

[[noreturn]] void refuse(FrontendRule rule, std::string_view error_type, std::string subject,
                         std::string message);

/// answer() or the error with which it refused.
template <typename Answer>
auto or_refused(const Answer& answer) -> OrRefused<decltype(answer())> {
    try {
        return answer();
    } catch (Refused& refused) {
        return std::move(refused.error);
    }
}

/// What a value of JSON is in Python; fails for a list of anything but texts. An object is None: no setting
/// is one.
PythonValue python_value(const json::Value& value);
PythonArguments python_arguments(const json::Value& object);

std::string lower(std::string_view text);
std::string upper(std::string_view text);

/// bool(value)
bool truth(const PythonValue& value);
/// The truth value that y, yes, t, true, on, 1 and their opposites stand for; refuses others.
bool boolean_word(std::string_view text);
/// int(text) of a plain integer; refuses what Python does.
std::int64_t integer_word(const std::string& text);

/// arguments[key]; None when it is not there.
PythonValue value_or_none(const PythonArguments& arguments, std::string_view key);
inline bool is_none(const PythonValue& value) {
    return std::holds_alternative<std::monostate>(value);
}

}  // namespace fsdplan::frontend
