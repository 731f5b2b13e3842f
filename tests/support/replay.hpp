#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "fsdplan/verify.hpp"

namespace fsdplan::test {

inline Verification replay(const std::string& path) {
    return verify(std::span(&path, 1));
}

/// Replays a file or folder of tests/golden, in which nothing may differ.
inline Verification replay_golden(const std::string& name) {
    Verification result = replay(FSDPLAN_TEST_DATA "/golden/" + name);
    for (const Difference& d : result.differences) {
        ADD_FAILURE() << d.case_name << ": " << d.where << "\n  expected " << d.expected << "\n  got "
                      << d.got;
    }
    return result;
}

}  // namespace fsdplan::test
