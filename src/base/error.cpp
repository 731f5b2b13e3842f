#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "fsdplan/base.hpp"

namespace fsdplan {
namespace {

constexpr int bug_exit_status = 4;

std::string joined(std::span<const Fault> faults) {
    std::string text;
    for (const Fault& fault : faults) {
        if (!text.empty()) {
            text += '\n';
        }
        if (!fault.where.empty()) {
            text += fault.where;
            text += ": ";
        }
        text += fault.message;
    }
    return text;
}

// Names come from files and command lines; a fault is one line whatever they hold.
std::string on_one_line(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20U && byte != 0x7fU) {
            out += c;
        } else {
            out += {'\\', 'x', digits[byte >> 4U], digits[byte & 0xfU]};
        }
    }
    return out;
}

}  // namespace

Error::Error(ErrorKind kind, std::string where, std::string message)
    : Error(kind, std::vector<Fault>{Fault{std::move(where), std::move(message)}}) {}

Error::Error(ErrorKind kind, std::vector<Fault> faults) : kind_(kind), faults_(std::move(faults)) {
    if (faults_.size() > most_faults) {
        faults_.resize(most_faults);
    }
    for (Fault& fault : faults_) {
        fault.where = on_one_line(fault.where);
        fault.message = on_one_line(fault.message);
    }
    text_ = joined(faults_);
}

std::int64_t checked_mul(std::int64_t a, std::int64_t b, std::string_view where) {
    FSDPLAN_ASSERT(a >= 0 && b >= 0, "sizes are checked for their sign when they are read");
    if (a != 0 && b > largest_total / a) {
        throw Error(ErrorKind::input, std::string(where),
                    "the product of " + std::to_string(a) + " and " + std::to_string(b) +
                        " exceeds 2^53; expected sizes of a model that can exist");
    }
    return a * b;
}

std::int64_t checked_add(std::int64_t a, std::int64_t b, std::string_view where) {
    FSDPLAN_ASSERT(a >= 0 && b >= 0, "sizes are checked for their sign when they are read");
    if (b > largest_total - a) {
        throw Error(ErrorKind::input, std::string(where),
                    "the sum of " + std::to_string(a) + " and " + std::to_string(b) +
                        " exceeds 2^53; expected sizes of a model that can exist");
    }
    return a + b;
}

void assertion_failed(const char* condition, const char* why, const char* file, int line) {
    std::fprintf(stderr, "fsdplan: bug: %s:%d: %s does not hold (%s)\n", file, line, condition, why);
    std::_Exit(bug_exit_status);
}

}  // namespace fsdplan
