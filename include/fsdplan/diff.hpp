#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// Two results, or two settings files, side by side.
namespace fsdplan {

/// What a key has; nothing where the key is missing or null.
using DiffValue = std::variant<std::monostate, bool, std::int64_t, double, std::string>;
/// Values by key, in the order that matters to a reader. Keys carry the unit: "peak.process_bytes".
using DiffValues = std::vector<std::pair<std::string, DiffValue>>;

struct DiffRow {
    std::string key;
    DiffValue before;
    DiffValue after;

    bool changed() const { return before != after; }
    bool is_number() const;
    /// Two integers whose difference is exact.
    bool is_whole() const;
    /// after - before of two numbers
    double difference() const;
    /// … in percent of `before`; absent where that is not above 0 or one of both is no number.
    std::optional<double> percent() const;
};

struct Diff {
    std::vector<DiffRow> settings;  ///< those that changed
    std::vector<DiffRow> results;   ///< all, changed or not: verdict, memory, time, traffic, units, the rest
    std::vector<std::string>
        notes;  ///< where the two answer different questions, and what a difference means

    bool same() const;
};

/// Two results of fsdplan as JSON, of any of its commands. Throws Error(input) at the file that is none.
Diff diff_results(std::string_view before, const std::string& before_file, std::string_view after,
                  const std::string& after_file);
Diff diff_settings(const DiffValues& before, const DiffValues& after);

enum class DiffInput : std::uint8_t { result, settings };
/// What a JSON text is: a result says so in its member "format". Throws Error(input) for one that is neither.
DiffInput diff_input(std::string_view json, const std::string& file);
/// Every value of a settings file in JSON by its dotted key.
DiffValues settings_in_json(std::string_view json, const std::string& file);

/// For a terminal: what changed in the settings, then what it did.
std::string text_report(const Diff& diff);
/// As JSON, `"command": "diff"`.
std::string json_report(const Diff& diff, const std::string& before_file, const std::string& after_file,
                        std::string_view version);

}  // namespace fsdplan
