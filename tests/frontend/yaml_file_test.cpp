#include "frontend/yaml_file.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace fsdplan {
namespace {

PythonValue read(const std::string& scalar) {
    return frontend::read_yaml("key: " + scalar + "\n", "test.yaml").at("").at("key");
}

// What yaml.safe_load of PyYAML 6 gives.
TEST(YamlFile, NumbersAreThoseOfPyYaml) {
    for (const char* text : {"1e6", "1.0e6", "_1", "09", ".", "-.5", "1.2.3", "1.5e+", "1.5e+1_0", "1-2"}) {
        EXPECT_EQ(read(text), PythonValue(text));
    }
    EXPECT_EQ(read("0"), PythonValue(std::int64_t{0}));
    EXPECT_EQ(read("-12"), PythonValue(std::int64_t{-12}));
    EXPECT_EQ(read("+1_000"), PythonValue(std::int64_t{1000}));
    EXPECT_EQ(read("012"), PythonValue(std::int64_t{10}));
    EXPECT_EQ(read("-0x_1F"), PythonValue(std::int64_t{-31}));
    EXPECT_EQ(read("0b101"), PythonValue(std::int64_t{5}));
    EXPECT_EQ(read(".5"), PythonValue(0.5));
    EXPECT_EQ(read("1."), PythonValue(1.0));
    EXPECT_EQ(read("-0.5"), PythonValue(-0.5));
    EXPECT_EQ(read("1_0.2_5"), PythonValue(10.25));
    EXPECT_EQ(read("1.0e+6"), PythonValue(1e6));
    EXPECT_EQ(read("2.5E-3"), PythonValue(2.5e-3));
}

}  // namespace
}  // namespace fsdplan
