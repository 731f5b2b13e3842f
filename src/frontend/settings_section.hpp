#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/frontend.hpp"

namespace fsdplan::frontend {

/// One table of a settings file. Each key that is asked for becomes a setting of the plan, with its value and
/// where that comes from; what nobody asks for is left over.
class SettingsSection {
public:
    /// `table`: absent where the file has none. `prefix` stands in front of its keys, such as "training.";
    /// `whose` says where values come from that the file lacks. `out` outlives it.
    SettingsSection(std::optional<json::Value> table, std::string prefix, std::string whose,
                    FrontendPlan& out);

    /// The word "auto" is a missing value where nobody fills it in.
    void auto_is_usual() { auto_is_usual_ = true; }

    // A value that is missing or null is `usual`. Where `filled` is given, the word "auto" stands for it.
    bool boolean(std::string_view key, bool usual, std::optional<bool> filled = std::nullopt);
    /// Also a real number without a fraction: 5e8.
    std::int64_t integer(std::string_view key, std::int64_t usual, std::int64_t least, std::int64_t most,
                         std::optional<std::int64_t> filled = std::nullopt);
    double number(std::string_view key, double usual, std::optional<double> filled = std::nullopt);
    /// `allowed`: empty for any.
    std::string word(std::string_view key, std::string_view usual,
                     std::initializer_list<std::string_view> allowed = {});
    /// Of any type, and no setting of the plan.
    std::optional<json::Value> raw(std::string_view key);
    /// Whether the file leaves it to the Trainer.
    bool is_auto(std::string_view key) const;

    /// Keys that the front end knows and that decide nothing here.
    void skip(std::span<const std::string_view> keys);
    void note(std::string_view key, std::string_view text);
    /// Throws Error(input): it does what no plan can tell.
    [[noreturn]] void refuse(std::string_view key, std::string_view text) const;
    /// Members that nobody asked for, as notes; `fate` says what the front end does with them.
    void note_unknown(std::string_view fate);
    /// Throws Error(input) for the first of them.
    void refuse_unknown() const;

private:
    std::optional<json::Value> find(std::string_view key, bool filled);
    std::string place_of(std::string_view key) const;
    void add(std::string_view key, std::string value, std::string from);
    std::string source(const std::optional<json::Value>& given) const;
    std::vector<json::Value> unknown() const;

    std::optional<json::Value> table_;
    std::string prefix_;
    std::string whose_;
    FrontendPlan& out_;
    std::vector<std::string> known_;
    bool auto_is_usual_ = false;
};

/// "a", "b" or "c"
std::string quoted_alternatives(std::span<const std::string_view> names);

}  // namespace fsdplan::frontend
