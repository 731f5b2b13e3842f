#include "cost/file_values.hpp"

namespace fsdplan {

double positive(const json::Value& value) {
    const double number = value.number();
    if (!(number > 0.0) || number > 1e15) {
        value.fail("a number above 0");
    }
    return number;
}

double not_negative(const json::Value& value) {
    const double number = value.number();
    if (!(number >= 0.0) || number > 1e15) {
        value.fail("a number of at least 0");
    }
    return number;
}

std::string text_or(const json::Value& object, std::string_view key, std::string_view absent) {
    const auto value = object.find(key);
    return std::string(value ? value->string() : absent);
}

void expect_format(const json::Value& object, std::string_view format) {
    if (object.at("format").string() != format) {
        object.at("format").fail("\"" + std::string(format) + "\"");
    }
    object.at("version").integer(1, 1);
}

}  // namespace fsdplan
