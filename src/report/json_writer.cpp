#include "report/json_writer.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/json.hpp"

namespace fsdplan {

void JsonWriter::before_value() {
    if (after_key_) {
        after_key_ = false;
        return;
    }
    if (levels_.empty()) {
        return;
    }
    Level& level = levels_.back();
    text_ += level.empty ? "" : ",";
    if (!level.on_one_line) {
        text_ += '\n';
        text_.append(2 * levels_.size(), ' ');
    } else if (!level.empty) {
        text_ += ' ';
    }
    level.empty = false;
}

JsonWriter& JsonWriter::begin_object(bool on_one_line) {
    const bool inside = !levels_.empty() && levels_.back().on_one_line;
    before_value();
    text_ += '{';
    levels_.push_back({.on_one_line = on_one_line || inside});
    return *this;
}

JsonWriter& JsonWriter::begin_array(bool on_one_line) {
    const bool inside = !levels_.empty() && levels_.back().on_one_line;
    before_value();
    text_ += '[';
    levels_.push_back({.on_one_line = on_one_line || inside});
    return *this;
}

void JsonWriter::close(char bracket) {
    const Level level = levels_.back();
    levels_.pop_back();
    if (!level.empty && !level.on_one_line) {
        text_ += '\n';
        text_.append(2 * levels_.size(), ' ');
    }
    text_ += bracket;
}

JsonWriter& JsonWriter::end_object() {
    close('}');
    return *this;
}

JsonWriter& JsonWriter::end_array() {
    close(']');
    return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
    before_value();
    text_ += json::quote(name) + ": ";
    after_key_ = true;
    return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
    before_value();
    text_ += json::quote(text);
    return *this;
}

JsonWriter& JsonWriter::value(std::int64_t number) {
    before_value();
    text_ += std::to_string(number);
    return *this;
}

JsonWriter& JsonWriter::value(double number) {
    if (!std::isfinite(number)) {
        return null();
    }
    before_value();
    std::array<char, 32> text{};
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
    text_.append(text.data(), end);
    return *this;
}

JsonWriter& JsonWriter::value(bool truth) {
    before_value();
    text_ += truth ? "true" : "false";
    return *this;
}

JsonWriter& JsonWriter::null() {
    before_value();
    text_ += "null";
    return *this;
}

std::string JsonWriter::take() {
    text_ += '\n';
    return std::move(text_);
}

}  // namespace fsdplan
