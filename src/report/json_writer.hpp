#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdplan {

/// Writes one JSON text from front to back, two spaces deep. Members of an object are written as key() and a
/// value; arrays of numbers stay on one line.
class JsonWriter {
public:
    JsonWriter& begin_object(bool on_one_line = false);
    JsonWriter& end_object();
    JsonWriter& begin_array(bool on_one_line = false);
    JsonWriter& end_array();
    JsonWriter& key(std::string_view name);

    JsonWriter& value(std::string_view text);
    JsonWriter& value(const char* text) { return value(std::string_view(text)); }
    JsonWriter& value(std::int64_t number);
    /// The shortest text that reads back the same; null for what JSON has no number for.
    JsonWriter& value(double number);
    JsonWriter& value(bool truth);
    JsonWriter& null();

    template <typename Value>
    JsonWriter& member(std::string_view name, const Value& v) {
        return key(name).value(v);
    }

    /// The text, with a final newline.
    std::string take();

private:
    struct Level {
        bool on_one_line = false;
        bool empty = true;
    };
    void before_value();
    void close(char bracket);

    std::string text_;
    std::vector<Level> levels_;
    bool after_key_ = false;
};

}  // namespace fsdplan
