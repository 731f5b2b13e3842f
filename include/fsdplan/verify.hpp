#pragma once

#include <cstdint>
#include <optional>
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

/// A case that was not replayed, and why. There is always a reason.
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

/// A figure of a real training run that somebody published, beside what is predicted for it.
struct PublishedFigure {
    std::string table;     ///< source and hardware
    std::string row;       ///< its id in the file
    std::string quantity;  ///< "peak reserved"
    std::string unit;      ///< "bytes", "tokens/s"
    double published = 0.0;
    double predicted = 0.0;
    // The interval that nine of ten figures should lie in.
    double low = 0.0;
    double high = 0.0;
    bool is_judged = true;  ///< false: what was run is not known well enough to count
    /// Of a reserved peak of an eager program: what our program holds at most. 0: not such a figure.
    double live_bytes = 0.0;

    double signed_error() const { return predicted / published - 1.0; }
    bool inside() const { return low <= published && published <= high; }
};

/// Whether a published run fitted into its GPU's memory, and whether it is predicted to.
struct PublishedOutcome {
    std::string table;
    std::string row;
    bool fits = true;
    bool predicted_fits = true;
    bool is_judged = true;
};

/// How close one quantity comes over the judged rows of one table.
struct TableAccuracy {
    std::string table;
    std::string quantity;
    std::size_t count = 0;
    double median = 0.0;  ///< of absolute errors
    double worst = 0.0;
    std::string worst_row;
    double bias = 0.0;  ///< mean of signed errors
    std::size_t inside = 0;
};

/// What a single factor on our own live bytes says about reserved memory, beside what the replayed allocator
/// says about the same rows.
struct FactorAccuracy {
    double factor = 0.0;  ///< the one with the smallest mean error over these very rows
    std::size_t count = 0;
    double median = 0.0;
    double worst = 0.0;
    double replay_median = 0.0;
    double replay_worst = 0.0;
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
    std::vector<PublishedFigure> figures;
    std::vector<PublishedOutcome> outcomes;

    bool all_match() const { return differ == 0 && tables == tables_match; }
};

/// One for each quantity, in the order in which they first occur.
std::vector<Accuracy> accuracies(const Verification& result);

/// One for each table and quantity, in the order in which they first occur.
std::vector<TableAccuracy> table_accuracies(const Verification& result);
/// Over the judged figures with `live_bytes`; nothing when there are none.
std::optional<FactorAccuracy> best_single_factor(const Verification& result);

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

/// Replays all recordings in folders (not below them) or files, in the order of their names.
/// Throws Error(input) for a folder without a recording.
Verification verify(std::span<const std::string> paths);

}  // namespace fsdplan
