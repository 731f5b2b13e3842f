#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

#include "base/json.hpp"

// The reader against nlohmann/json, which is slower and has no known fault here.
namespace fsdplan {
namespace {

nlohmann::json copy_of(json::Value value) {
    switch (value.type()) {
        case json::Type::null:
            return nullptr;
        case json::Type::boolean:
            return value.boolean();
        case json::Type::integer:
            return value.integer();
        case json::Type::real:
            return value.number();
        case json::Type::string:
            return std::string(value.string());
        case json::Type::array: {
            nlohmann::json out = nlohmann::json::array();
            for (const json::Value element : value.elements()) {
                out.push_back(copy_of(element));
            }
            return out;
        }
        case json::Type::object: {
            nlohmann::json out = nlohmann::json::object();
            for (const json::Value member : value.members()) {
                out[std::string(member.key())] = copy_of(member);
            }
            return out;
        }
    }
    return {};
}

struct Outcome {
    std::optional<nlohmann::json> value;
    std::string fault;
};

Outcome ours(const std::string& text) {
    try {
        const json::Document document(text, "x.json");
        return {copy_of(document.root()), ""};
    } catch (const Error& error) {
        return {std::nullopt, error.what()};
    }
}

std::optional<nlohmann::json> theirs(const std::string& text) {
    nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
    return value.is_discarded() ? std::nullopt : std::optional(std::move(value));
}

/// What we refuse on purpose although nlohmann/json takes it.
bool refused_on_purpose(const std::string& fault) {
    return fault.find("occurs twice") != std::string::npos ||
           fault.find("nested deeper") != std::string::npos ||
           fault.find("byte order mark") != std::string::npos ||
           fault.find("too big to be stored in double") != std::string::npos;
}

void compare(const std::string& text) {
    const Outcome got = ours(text);
    if (got.value.has_value() || !refused_on_purpose(got.fault)) {
        EXPECT_EQ(got.value, theirs(text)) << text << "\n" << got.fault;
    }
}

TEST(JsonParser, ReadsWhatNlohmannReads) {
    for (const char* text : {
             "0",
             "-0",
             "-12",
             "9223372036854775807",
             "9223372036854775808",
             "-9223372036854775808",
             "-9223372036854775809",
             "1.5e3",
             "1E-2",
             "0.1",
             "0e65",
             "-0.00e300",
             "4.9e-324",
             "1e-400",
             "1.7976931348623157e308",
             "123456789012345678901234567890",
             " [ ] ",
             "{}",
             "\t\r\n[1 , 2]\n",
             "true",
             "false",
             "null",
             R"("")",
             R"("a\"\\\/\b\f\n\r\t")",
             R"("\u0041\u00e9\u20ac\ud83d\ude00\u0000")",
             R"({"a": {"b": [1, "c", {}]}, "": null})",
             "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
             "[\"a\\u0041b\", \"after an escape\"]",
         }) {
        ASSERT_TRUE(ours(text).value.has_value()) << text << ours(text).fault;
        EXPECT_EQ(ours(text).value, theirs(text)) << text;
    }
}

TEST(JsonParser, RefusesWhatNlohmannRefuses) {
    for (const char* text : {"",
                             " ",
                             "[",
                             "]",
                             "[1",
                             "[1,]",
                             "[,1]",
                             "[1 2]",
                             "{",
                             "{\"a\"}",
                             "{\"a\":}",
                             "{\"a\":1,}",
                             "{a:1}",
                             "{1:2}",
                             "{} {}",
                             "01",
                             "-",
                             "+1",
                             ".5",
                             "1.",
                             "1e",
                             "1e+",
                             "--1",
                             "0x10",
                             "NaN",
                             "Infinity",
                             "tru",
                             "nulll",
                             "\"",
                             "\"a",
                             "\"\\\"",
                             "\"\\x\"",
                             "\"\\u12\"",
                             "\"\\u12g4\"",
                             "\"\\ud800\"",
                             "\"\\ud800\\u0041\"",
                             "\"\\udc00\"",
                             "\"\n\"",
                             "\"\x80\"",
                             "\"\xc0\xaf\"",
                             "\"\xed\xa0\x80\"",
                             "\"\xf4\x90\x80\x80\"",
                             "\"\xe2\x82\"",
                             "'a'",
                             "[1]//",
                             "/**/1",
                             "\x01",
                             "{\"a\":1]",
                             "[1}"}) {
        EXPECT_FALSE(ours(text).value.has_value()) << text;
        EXPECT_FALSE(theirs(text).has_value()) << text;
    }
    EXPECT_FALSE(ours(std::string("\"\0\"", 3)).value.has_value());
    EXPECT_FALSE(ours(std::string("1\0", 2)).value.has_value());
}

TEST(JsonParser, RefusesNumbersBeyondADouble) {
    for (const char* text : {"[1e999]", "[-1.9e308]", "[99.9e307]"}) {
        EXPECT_EQ(ours(text).fault,
                  "x.json: not valid JSON at byte 1: Number too big to be stored in double.")
            << text;
    }
}

TEST(JsonParser, AgreesWithNlohmannOnDamagedTexts) {
    constexpr unsigned seed = 20260701;
    const std::string sound =
        R"({"metadata": {"total_size": 16, "x": -1.25}, "weight_map": {"a.\u00e9\"": "f", "b\\": [true, null]}})";
    const std::string spare = "{}[]\",:\\u0d8-+.eE19tfn \n\x80\xc3\xe2\xed\xf0";
    std::mt19937 random(seed);
    const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
    for (int round = 0; round < 20'000; ++round) {
        std::string text = sound;
        const std::size_t edits = 1 + below(3);
        for (std::size_t i = 0; i < edits; ++i) {
            const std::size_t at = below(text.size());
            switch (below(3)) {
                case 0:
                    text[at] = spare[below(spare.size())];
                    break;
                case 1:
                    text.erase(at, 1 + below(4));
                    break;
                default:
                    text.insert(at, 1, spare[below(spare.size())]);
            }
        }
        compare(text);
        ASSERT_FALSE(HasFailure()) << "seed " << seed << ", round " << round;
    }
}

TEST(JsonParser, FindsDuplicatesAmongManyKeys) {
    std::string text = "{";
    for (int i = 0; i < 1000; ++i) {
        text += "\"key" + std::to_string(i) + "\": 0, ";
    }
    EXPECT_TRUE(ours(text + "\"last\": 0}").value.has_value());
    EXPECT_EQ(ours(text + "\"key500\": 0}").fault, "x.json: the key \"key500\" occurs twice in one object");
}

// RapidJSON used to read past the end here; an address-sanitized build shows it.
TEST(JsonParser, ACharacterThatTheTextCutsOffIsRefused) {
    for (const char* text : {"[\"\xf0", "[\"\xf0\x9f", "[\"\xe2\x82", "{\"\xc3"}) {
        EXPECT_NE(ours(text).fault, "") << text;
    }
}

TEST(JsonParser, SaysWhereTheTextGoesWrong) {
    EXPECT_EQ(ours("[1, 2 3]").fault,
              "x.json: not valid JSON at byte 6: Missing a comma or ']' after an array element.");
    EXPECT_EQ(ours("{\"a\": NaN}").fault, "x.json: not valid JSON at byte 6: Invalid value.");
    EXPECT_EQ(ours(std::string("1\0", 2)).fault, "x.json: not valid JSON at byte 1: a zero byte");
    EXPECT_EQ(ours("[\"\\udc00\"]").fault,
              "x.json: not valid JSON: half of a surrogate pair in \"\ufffd\ufffd\ufffd\"");
}

}  // namespace
}  // namespace fsdplan
