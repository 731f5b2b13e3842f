#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdplan {

/// A number of bytes. A type of its own, so that it cannot be mixed up with a number of elements.
struct Bytes {
    std::int64_t count = 0;

    friend constexpr auto operator<=>(Bytes, Bytes) = default;
    friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
    friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
    friend constexpr Bytes operator*(Bytes a, std::int64_t n) { return {a.count * n}; }
    constexpr Bytes& operator+=(Bytes b) {
        count += b.count;
        return *this;
    }
};

constexpr Bytes operator""_B(unsigned long long n) {
    return {static_cast<std::int64_t>(n)};
}
constexpr Bytes operator""_MiB(unsigned long long n) {
    return {static_cast<std::int64_t>(n << 20U)};
}
constexpr Bytes operator""_GiB(unsigned long long n) {
    return {static_cast<std::int64_t>(n << 30U)};
}

using Duration = std::chrono::nanoseconds;

/// What is not known exactly: the best guess and the ends of its interval. The unit is in the variable's
/// name.
struct Estimate {
    std::int64_t value = 0;
    std::int64_t low = 0;
    std::int64_t high = 0;

    friend constexpr bool operator==(const Estimate&, const Estimate&) = default;
    friend constexpr Estimate operator+(const Estimate& a, const Estimate& b) {
        return {a.value + b.value, a.low + b.low, a.high + b.high};
    }
};

/// An exact number as an estimate without width.
constexpr Estimate exactly(std::int64_t value) {
    return {value, value, value};
}

enum class ErrorKind : std::uint8_t {
    input,    ///< what the user gave is wrong: exit status 2
    machine,  ///< this machine or a device failed or lacks what was asked for: exit status 3
};

/// One thing that is wrong. Printed as "where: message" on one line.
struct Fault {
    std::string where;    ///< file with JSON pointer or byte offset, option, or the call that failed
    std::string message;  ///< what was found and what would be right; lower case, no full stop
};

/// Thrown for input that cannot be used and for machines that fail. Holds one to `most_faults` faults.
class Error : public std::exception {
public:
    static constexpr std::size_t most_faults = 20;

    Error(ErrorKind kind, std::string where, std::string message);
    Error(ErrorKind kind, std::vector<Fault> faults);

    ErrorKind kind() const { return kind_; }
    std::span<const Fault> faults() const { return faults_; }
    /// All faults, one a line.
    const char* what() const noexcept override { return text_.c_str(); }

private:
    ErrorKind kind_;
    std::vector<Fault> faults_;
    std::string text_;
};

/// No model or file may describe more elements or bytes than this: exact in a double and in JavaScript too,
/// and sums of a few such numbers still fit 63 bits.
constexpr std::int64_t largest_total = std::int64_t{1} << 53U;

/// a * b for non-negative a and b; throws Error(input) at `where` when the product exceeds `largest_total`.
std::int64_t checked_mul(std::int64_t a, std::int64_t b, std::string_view where);

/// a + b for non-negative a and b; throws Error(input) at `where` when the sum exceeds `largest_total`.
std::int64_t checked_add(std::int64_t a, std::int64_t b, std::string_view where);

/// ceil(a / b) for a >= 0 and b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return a / b + (a % b != 0 ? 1 : 0);
}

/// a rounded up to a multiple of b, for a >= 0 and b > 0.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
    return ceil_div(a, b) * b;
}

/// The candidates most like `name`, best first, none that is nothing like it; letter case counts least.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates,
                                       std::size_t most = 3);

/// `; did you mean "a" or "b"?` for the nearest candidates, or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// Stops on a bug of ours (exit status 4). No input can reach it.
#define FSDPLAN_ASSERT(condition, why) \
    ((condition) ? static_cast<void>(0) : ::fsdplan::assertion_failed(#condition, why, __FILE__, __LINE__))
[[noreturn]] void assertion_failed(const char* condition, const char* why, const char* file, int line);

}  // namespace fsdplan
