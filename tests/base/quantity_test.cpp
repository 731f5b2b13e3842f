#include "base/quantity.hpp"

#include <gtest/gtest.h>

namespace fsdplan {
namespace {

std::string refusal(const char* text) {
    try {
        parse_bytes(text, "--memory");
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(ParseBytes, KnowsBinaryAndDecimalUnits) {
    EXPECT_EQ(parse_bytes("76GiB", "--memory"), 76_GiB);
    EXPECT_EQ(parse_bytes("80 gb", "--memory"), 80'000'000'000_B);
    EXPECT_EQ(parse_bytes("79.5GiB", "--memory"),
              Bytes{79 * (std::int64_t{1} << 30) + (std::int64_t{1} << 29)});
    EXPECT_EQ(parse_bytes("1TiB", "--memory"), 1024_GiB);
    EXPECT_EQ(parse_bytes("512MiB", "--memory"), 512_MiB);
    EXPECT_EQ(parse_bytes("100B", "--memory"), 100_B);
}

TEST(ParseBytes, SaysWhatIsWrong) {
    EXPECT_EQ(refusal("76"),
              "--memory: \"76\" has no unit; expected a number with a unit, such as 76GiB or 80GB "
              "(KiB, MiB, GiB, TiB, KB, MB, GB, TB, B)");
    EXPECT_NE(refusal("76GB/s").find("unknown unit \"GB/s\""), std::string::npos);
    EXPECT_NE(refusal("much").find("found \"much\""), std::string::npos);
    EXPECT_NE(refusal("-1GiB").find("found \"-1GiB\""), std::string::npos);
    EXPECT_NE(refusal("0.1B").find("less than one byte"), std::string::npos);
    EXPECT_NE(refusal("99999999TiB").find("more than 2^53"), std::string::npos);
    EXPECT_NE(refusal("").find("found \"\""), std::string::npos);
    EXPECT_NE(refusal("nanGiB"), "");
    EXPECT_NE(refusal("1e400GiB"), "");
}

TEST(Show, ThreeDigitsAndAUnit) {
    EXPECT_EQ(show_bytes(84'933'613'158), "79.1 GiB");
    EXPECT_EQ(show_bytes(33'554'432), "32.0 MiB");
    EXPECT_EQ(show_bytes(12), "12 B");
    EXPECT_EQ(show_bytes(-(std::int64_t{3} << 30)), "-3.00 GiB");
    EXPECT_EQ(show_numel(218'112'000), "218 M");
    EXPECT_EQ(show_numel(1'342'177'280), "1.34 G");
    EXPECT_EQ(show_duration(812'345'678), "812 ms");
    EXPECT_EQ(show_integer(8'030'261'248), "8,030,261,248");
    EXPECT_EQ(show_integer(-1234), "-1,234");
    EXPECT_EQ(show_integer(-123456), "-123,456");
    EXPECT_EQ(show_integer(999), "999");
    EXPECT_EQ(show_integer(0), "0");
}

}  // namespace
}  // namespace fsdplan
