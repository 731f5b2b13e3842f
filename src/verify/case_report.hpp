#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "fsdplan/verify.hpp"

namespace fsdplan {

/// Collects what differs in one case.
class CaseReport {
public:
    explicit CaseReport(std::string name) : name_(std::move(name)) {}

    void compare(const std::string& where, const std::string& expected, const std::string& got) {
        if (expected != got) {
            differences_.push_back({.case_name = name_, .where = where, .expected = expected, .got = got});
        }
    }

    bool matches() const { return differences_.empty(); }

    void close(Verification& out) {
        ++out.cases;
        ++(differences_.empty() ? out.match : out.differ);
        std::ranges::move(differences_, std::back_inserter(out.differences));
    }

private:
    std::string name_;
    std::vector<Difference> differences_;
};

/// Counts a case that is not replayed.
inline void skip_case(std::string name, std::string reason, Verification& out) {
    ++out.cases;
    ++out.skipped;
    out.skips.push_back({.case_name = std::move(name), .reason = std::move(reason)});
}

}  // namespace fsdplan
