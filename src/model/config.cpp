#include "model/config.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

constexpr std::int64_t largest_size = std::int64_t{1} << 40U;
constexpr std::int64_t largest_count = 100'000;

}  // namespace

std::optional<json::Value> Config::present(std::string_view key) const {
    return object_.given(key);
}

std::int64_t Config::defaulted(std::string_view key, std::int64_t absent) const {
    std::string entry = std::string(key) + " = " + std::to_string(absent);
    if (std::ranges::find(*defaults_used_, entry) == defaults_used_->end()) {
        defaults_used_->push_back(std::move(entry));
    }
    return absent;
}

bool Config::has(std::string_view key) const {
    return present(key).has_value();
}

std::int64_t Config::size(std::string_view key, std::int64_t absent, std::int64_t least) const {
    return size({key}, absent, least);
}

std::int64_t Config::size(std::initializer_list<std::string_view> keys, std::int64_t absent,
                          std::int64_t least) const {
    for (const std::string_view key : keys) {
        if (const auto found = present(key)) {
            return found->integer(least, largest_size);
        }
    }
    return defaulted(*keys.begin(), absent);
}

std::optional<std::int64_t> Config::optional_size(std::string_view key) const {
    const auto found = present(key);
    return found ? std::optional(found->integer(1, largest_size)) : std::nullopt;
}

std::int64_t Config::integer(std::string_view key, std::int64_t absent) const {
    const auto found = present(key);
    return found ? found->integer(-largest_size, largest_size) : absent;
}

std::int64_t Config::count(std::string_view key, std::int64_t absent) const {
    return count({key}, absent);
}

std::int64_t Config::count(std::initializer_list<std::string_view> keys, std::int64_t absent) const {
    for (const std::string_view key : keys) {
        if (const auto found = present(key)) {
            return found->integer(0, largest_count);
        }
    }
    return defaulted(*keys.begin(), absent);
}

bool Config::flag(std::string_view key, bool absent) const {
    const auto found = present(key);
    return found ? found->boolean() : absent;
}

double Config::number(std::string_view key, double absent) const {
    const auto found = present(key);
    return found ? found->number() : absent;
}

std::string Config::text(std::string_view key, std::string_view absent) const {
    const auto found = present(key);
    return std::string(found ? found->string() : absent);
}

std::vector<std::string> Config::strings(std::string_view key) const {
    const auto found = present(key);
    return found ? found->strings() : std::vector<std::string>{};
}

std::vector<std::int64_t> Config::sizes(std::string_view key, std::vector<std::int64_t> absent) const {
    const auto found = present(key);
    if (!found) {
        return absent;
    }
    std::vector<std::int64_t> out;
    for (const json::Value value : found->elements()) {
        out.push_back(value.integer(0, largest_size));
    }
    return out;
}

std::optional<Config> Config::nested(std::string_view key) const {
    const auto found = present(key);
    if (!found) {
        return std::nullopt;
    }
    if (!found->is_object()) {
        found->fail("an object");
    }
    return Config(*found, defaults_used_);
}

Config Config::nested_or_empty(std::string_view key) const {
    static const json::Document empty("{}", "(defaults)");
    return nested(key).value_or(Config(empty.root(), defaults_used_));
}

std::int64_t Config::product(std::int64_t a, std::int64_t b) const {
    return checked_mul(a, b, object_.where());
}

void Config::require_divides(std::int64_t divisor, std::string_view divisor_key, std::int64_t value,
                             std::string_view key) const {
    if (divisor == 0 || value % divisor != 0) {
        refuse(key, std::to_string(value) + " is not a multiple of " + std::string(divisor_key) + " " +
                        std::to_string(divisor));
    }
}

void Config::refuse(std::string_view key, const std::string& message) const {
    const auto found = present(key);
    const std::string where = found ? found->where() : object_.where();
    throw Error(ErrorKind::input, where, (found ? "" : std::string(key) + ": ") + message);
}

std::optional<DType> Config::dtype() const {
    for (const std::string_view key : {"dtype", "torch_dtype"}) {
        const auto found = present(key);
        if (!found || (found->is_string() && found->string() == "auto")) {
            continue;
        }
        const std::optional<DType> dtype = dtype_from_name(found->string());
        if (!dtype) {
            found->fail("a dtype such as \"bfloat16\"");
        }
        return dtype;
    }
    return std::nullopt;
}

}  // namespace fsdplan
