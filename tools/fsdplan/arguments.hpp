#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdplan::cli {

/// The words of one command: declared first, then parsed. Parsing is CLI11's, which is slow to compile and
/// therefore included in one file only.
class Arguments {
public:
    Arguments(std::string command, std::string help, std::string example);
    Arguments(const Arguments&) = delete;
    Arguments& operator=(const Arguments&) = delete;
    Arguments(Arguments&&) = delete;
    Arguments& operator=(Arguments&&) = delete;
    ~Arguments();

    // The variables receive the values when the words are parsed; they keep their defaults otherwise. `names`
    // are as in "-o,--output", `type` stands for the value in the help.

    /// The heading in the help over what is declared from here on.
    void group(const std::string& heading);
    /// A word that has to be there.
    void positional(const std::string& name, std::string& value, const std::string& help);
    /// A word that may be left out.
    void positional(const std::string& name, std::optional<std::string>& value, const std::string& help);
    /// One or more words.
    void positional(const std::string& name, std::vector<std::string>& values, const std::string& help);
    void option(const std::string& names, std::string& value, const std::string& help,
                const std::string& type);
    void option(const std::string& names, std::optional<std::string>& value, const std::string& help,
                const std::string& type);
    /// An option that may be repeated.
    void option(const std::string& names, std::vector<std::string>& values, const std::string& help,
                const std::string& type);
    /// A whole number from `least` to `most`.
    void option(const std::string& names, std::int64_t& value, const std::string& help, std::int64_t least,
                std::int64_t most);
    void option(const std::string& names, std::optional<std::int64_t>& value, const std::string& help,
                std::int64_t least, std::int64_t most);
    /// Values separated by commas.
    void list(const std::string& names, std::vector<std::string>& values, const std::string& help,
              const std::string& type);
    void list(const std::string& names, std::optional<std::vector<std::string>>& values,
              const std::string& help, const std::string& type);
    void list(const std::string& names, std::vector<std::int64_t>& values, const std::string& help,
              std::int64_t least, std::int64_t most);
    void flag(const std::string& names, bool& value, const std::string& help);

    enum class Outcome : std::uint8_t { parsed, help_wanted };
    /// Throws Error(input) in one line, with the nearest option for an unknown one.
    Outcome parse(std::vector<std::string> words);
    std::string help() const;

private:
    struct Parser;
    std::string command_;
    std::string group_ = "Options";
    std::unique_ptr<Parser> parser_;
};

}  // namespace fsdplan::cli
