#include "base/json.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fsdplan {
namespace {

std::string fault_of(std::string_view text) {
    try {
        const json::Document document(text, "x.json");
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

TEST(JsonDocument, KeepsMembersInTheOrderOfTheFile) {
    const json::Document document(R"({"b": 1, "a": [2, {"c": "d"}]})", "x.json");
    std::string keys;
    for (const json::Value member : document.root().members()) {
        keys += member.key();
    }
    EXPECT_EQ(keys, "ba");
    EXPECT_EQ(document.root().at("a").size(), 2U);
}

TEST(JsonDocument, ValuesKnowTheirPointer) {
    const json::Document document(R"({"a": [2, {"c/d": "e"}]})", "x.json");
    const json::Value inner = *++document.root().at("a").elements().begin();
    try {
        inner.at("c/d").integer(0);
        FAIL() << "a string was taken for an integer";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "x.json#/a/1/c~1d: expected a non-negative integer, found \"e\"");
    }
}

TEST(JsonDocument, RefusesWhatTheParserWouldTakeSilently) {
    EXPECT_EQ(fault_of(R"({"a": 1, "a": 2})"), "x.json: the key \"a\" occurs twice in one object");
    EXPECT_EQ(fault_of("\xef\xbb\xbf{}"), "x.json: begins with a byte order mark, which is not JSON");
    EXPECT_EQ(fault_of(std::string(65, '[')), "x.json: nested deeper than 64 levels");
    EXPECT_NE(fault_of(R"({"a": NaN})"), "accepted");
    EXPECT_NE(fault_of(""), "accepted");
    EXPECT_NE(fault_of("{} {}"), "accepted");
}

TEST(JsonValue, NumbersThatDoNotFitAreNoIntegers) {
    const json::Document document("[18446744073709551615, 3.9, -1]", "x.json");
    for (const json::Value value : document.root().elements()) {
        EXPECT_THROW(value.integer(0), Error);
    }
}

TEST(JsonValue, AnUnknownKeyNamesTheNearestOne) {
    const json::Document document(R"({"shap": 1})", "x.json");
    try {
        document.root().allow_only({"shape", "dtype"});
        FAIL() << "an unknown key was accepted";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "x.json: unknown key \"shap\"; did you mean \"shape\"?");
    }
}

}  // namespace
}  // namespace fsdplan
