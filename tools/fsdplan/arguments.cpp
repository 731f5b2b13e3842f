#include "arguments.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "fsdplan/base.hpp"

namespace fsdplan::cli {

struct Arguments::Parser {
    CLI::App app;
};

namespace {

/// CLI11's message in one line, with the nearest option where one was not known.
std::string explain(const CLI::ParseError& error, const CLI::App& app) {
    const std::vector<std::string> extras = app.remaining();
    const auto unknown =
        std::ranges::find_if(extras, [](const std::string& word) { return word.starts_with("-"); });
    if (unknown == extras.end()) {
        std::string text = error.what();
        std::ranges::replace(text, '\n', ' ');
        return text;
    }
    std::vector<std::string> options;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) {
            options.push_back("--" + name);
        }
    }
    return "unknown option " + *unknown + did_you_mean(*unknown, options);
}

/// One value an occurrence, all occurrences kept.
void repeat(CLI::Option* option) {
    option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace

Arguments::Arguments(std::string command, std::string help, std::string example)
    : command_(std::move(command)), parser_(std::make_unique<Parser>()) {
    parser_->app.name("fsdplan " + command_);
    parser_->app.description(std::move(help));
    parser_->app.footer("example: " + std::move(example));
}

Arguments::~Arguments() = default;

void Arguments::group(const std::string& heading) {
    group_ = heading;
}

void Arguments::positional(const std::string& name, std::string& value, const std::string& help) {
    parser_->app.add_option(name, value, help)->required();
}

void Arguments::positional(const std::string& name, std::optional<std::string>& value,
                           const std::string& help) {
    parser_->app.add_option(name, value, help);
}

void Arguments::positional(const std::string& name, std::vector<std::string>& values,
                           const std::string& help) {
    parser_->app.add_option(name, values, help)->required();
}

void Arguments::option(const std::string& names, std::string& value, const std::string& help,
                       const std::string& type) {
    parser_->app.add_option(names, value, help)->type_name(type)->group(group_);
}

void Arguments::option(const std::string& names, std::optional<std::string>& value, const std::string& help,
                       const std::string& type) {
    parser_->app.add_option(names, value, help)->type_name(type)->group(group_);
}

void Arguments::option(const std::string& names, std::vector<std::string>& values, const std::string& help,
                       const std::string& type) {
    repeat(parser_->app.add_option(names, values, help)->type_name(type)->group(group_));
}

void Arguments::option(const std::string& names, std::int64_t& value, const std::string& help,
                       std::int64_t least, std::int64_t most) {
    parser_->app.add_option(names, value, help)
        ->type_name("N")
        ->check(CLI::Range(least, most))
        ->group(group_);
}

void Arguments::option(const std::string& names, std::optional<std::int64_t>& value, const std::string& help,
                       std::int64_t least, std::int64_t most) {
    parser_->app.add_option(names, value, help)
        ->type_name("N")
        ->check(CLI::Range(least, most))
        ->group(group_);
}

void Arguments::list(const std::string& names, std::vector<std::string>& values, const std::string& help,
                     const std::string& type) {
    repeat(parser_->app.add_option(names, values, help)
               ->type_name(type + ",...")
               ->delimiter(',')
               ->group(group_));
}

void Arguments::list(const std::string& names, std::optional<std::vector<std::string>>& values,
                     const std::string& help, const std::string& type) {
    repeat(parser_->app.add_option(names, values, help)
               ->type_name(type + ",...")
               ->delimiter(',')
               ->group(group_));
}

void Arguments::list(const std::string& names, std::vector<std::int64_t>& values, const std::string& help,
                     std::int64_t least, std::int64_t most) {
    CLI::Option* option = parser_->app.add_option(names, values, help);
    repeat(option->type_name("N,...")->delimiter(',')->check(CLI::Range(least, most))->group(group_));
}

void Arguments::flag(const std::string& names, bool& value, const std::string& help) {
    parser_->app.add_flag(names, value, help)->group(group_);
}

Arguments::Outcome Arguments::parse(std::vector<std::string> words) {
    try {
        std::ranges::reverse(words);  // CLI11 takes them last first
        parser_->app.parse(std::move(words));
    } catch (const CLI::CallForHelp&) {
        return Outcome::help_wanted;
    } catch (const CLI::ParseError& error) {
        throw Error(ErrorKind::input, command_, explain(error, parser_->app));
    }
    return Outcome::parsed;
}

std::string Arguments::help() const {
    return parser_->app.help();
}

}  // namespace fsdplan::cli
