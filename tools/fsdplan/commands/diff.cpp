#include "fsdplan/diff.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <memory>

#include "arguments.hpp"
#include "base/file.hpp"
#include "command.hpp"
#include "frontend/toml_file.hpp"
#include "frontend/yaml_file.hpp"
#include "fsdplan/base.hpp"
#include "options.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct DiffOptions {
    std::string before;
    std::string after;
    OutputOptions output;
};

/// The file as JSON: what it is written in, its name says.
std::string as_json(const std::string& file) {
    const std::string suffix = std::filesystem::path(file).extension().string();
    std::string text = read_text(file);
    if (suffix == ".yaml" || suffix == ".yml") {
        return frontend::yaml_as_json(text, file);
    }
    return suffix == ".toml" ? frontend::toml_as_json(text, file) : text;
}

/// One of the files: what is in it, and its text as JSON.
struct Input {
    DiffInput kind = DiffInput::settings;
    std::string json;
    DiffValues settings;
};

Input read(const std::string& file) {
    Input input{.json = as_json(file)};
    input.kind = diff_input(input.json, file);
    if (input.kind == DiffInput::settings) {
        input.settings = settings_in_json(input.json, file);
    }
    return input;
}

std::string_view word(DiffInput kind) {
    return kind == DiffInput::result ? "a result of fsdplan" : "a settings file";
}

Diff compare(const DiffOptions& options) {
    const Input before = read(options.before);
    const Input after = read(options.after);
    if (before.kind != after.kind) {
        throw Error(ErrorKind::input, options.after,
                    fmt::format("is {}, while {} is {}; they have nothing to compare", word(after.kind),
                                options.before, word(before.kind)));
    }
    return before.kind == DiffInput::result
               ? diff_results(before.json, options.before, after.json, options.after)
               : diff_settings(before.settings, after.settings);
}

int run(const DiffOptions& options) {
    options.output.expect_json();
    const std::string& file = options.output.file;
    const Diff diff = compare(options);
    const std::string json = json_report(diff, options.before, options.after, version());
    if (!file.empty()) {
        write_file(file, json);
    }
    fmt::print("{}", options.output.json ? json : text_report(diff));
    return diff.same() ? answered : answered_no;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo diff;
constinit const cli::CommandInfo diff{
    .name = "diff",
    .help = "two results, or two settings files, side by side: what changed and what it did",
    .example = "fsdplan diff before.json after.json",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::DiffOptions>();
        arguments.positional(
            "BEFORE", options->before,
            "JSON that a command wrote with -o or --json, or settings in YAML, TOML or JSON");
        arguments.positional("AFTER", options->after, "another of the same kind");
        arguments.group("Output");
        options->output.declare(arguments, "JSON");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
