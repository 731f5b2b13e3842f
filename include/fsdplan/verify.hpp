#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fsdplan/base.hpp"

// Replays recordings of the real PyTorch and counts what differs.
namespace fsdplan {

struct Difference {
    std::string case_name;  ///< file and number of the case
    std::string where;      ///< what of it, e.g. "unit 3 parameters"
    std::string expected;   ///< as recorded
    std::string got;        ///< as computed here
};

/// A case that was not replayed, or a number of one that was not compared, and why. Never without a reason.
struct Skip {
    std::string case_name;
    std::string reason;
};

/// A number that need only come close, whether it does or not.
struct Deviation {
    std::string quantity;   ///< "peak of allocated memory"
    std::string case_name;  ///< and where in it
    std::int64_t expected = 0;
    std::int64_t got = 0;

    /// Distance relative to what was recorded; 1 for anything where that is nothing.
    double error() const;
};

/// How close one quantity comes over all cases.
struct Accuracy {
    std::string quantity;
    std::size_t count = 0;
    double median = 0.0;
    double worst = 0.0;
    std::string worst_case;
    std::size_t within_half_percent = 0;
    std::size_t within_two_percent = 0;
    std::size_t within_five_percent = 0;
};

struct Verification {
    std::int64_t cases = 0;
    std::int64_t match = 0;
    std::int64_t differ = 0;
    std::int64_t skipped = 0;
    /// What a recording holds beside its cases, e.g. whole tables of thresholds.
    std::int64_t tables = 0;
    std::int64_t tables_match = 0;
    std::vector<Difference> differences;  ///< all of every differing case
    std::vector<Skip> skips;
    std::vector<Deviation> deviations;

    bool all_match() const { return differ == 0 && tables == tables_match; }
};

/// One for each quantity, in the order in which they first occur.
std::vector<Accuracy> accuracies(const Verification& result);

/// One layout of recordings. An entry is one file in src/verify/builtin.
struct RecordingInfo {
    std::string_view name;
    std::string_view help;
    /// Whether this file heads a recording of this layout. `head`: the first 4 KiB of its text, unpacked when
    /// it is gzip; empty when it cannot be read. Many layouts are JSON, so look at more than the name's
    /// ending.
    bool (*recognises)(const std::string& path, std::string_view head);
    /// Replays one file; throws Error(input) when it cannot be read.
    void (*replay)(const std::string& path, Verification& out);
};

namespace builtin {
std::span<const RecordingInfo* const> recordings();
}  // namespace builtin

/// Replays all recordings in folders or files, in the order of their names. A folder without a recording of
/// its own stands for the folders in it.
/// Throws Error(input) for a folder without a recording.
Verification verify(std::span<const std::string> paths);

}  // namespace fsdplan
