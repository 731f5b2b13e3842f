#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/heap.hpp"
#include "command.hpp"
#include "fsdplan/base.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

std::vector<std::string> command_names() {
    std::vector<std::string> names;
    for (const CommandInfo* command : builtin::commands()) {
        names.emplace_back(command->name);
    }
    return names;
}

void print_overview(std::FILE* out) {
    fmt::print(out,
               "fsdplan: what sharded PyTorch training will need and where its wrap boundaries fall,\n"
               "before the GPUs are booked\n\nusage: fsdplan COMMAND [MODEL] [options]\n\n");
    for (const CommandInfo* command : builtin::commands()) {
        fmt::print(out, "  {:<12}{}\n", command->name, command->help);
    }
    fmt::print(out,
               "\n  fsdplan COMMAND --help    options of a command, with an example\n"
               "  fsdplan --version         version and optional components\n");
}

void print_faults(const Error& error) {
    for (const Fault& fault : error.faults()) {
        fmt::print(stderr, "fsdplan: {}{}{}\n", fault.where, fault.where.empty() ? "" : ": ", fault.message);
    }
}

int run(const CommandInfo& command, std::vector<std::string> words) {
    Arguments arguments(std::string(command.name), std::string(command.help), std::string(command.example));
    const std::function<int()> body = command.setup(arguments);
    if (arguments.parse(std::move(words)) == Arguments::Outcome::help_wanted) {
        fmt::print("{}", arguments.help());
        return answered;
    }
    return body();
}

int dispatch(const std::vector<std::string>& words) {
    if (words.empty()) {
        print_overview(stderr);
        return bad_input;
    }
    const std::string& first = words.front();
    if (first == "--help" || first == "-h" || first == "help") {
        print_overview(stdout);
        return answered;
    }
    if (first == "--version") {
        print_version();
        return answered;
    }
    const auto commands = builtin::commands();
    const auto command = std::ranges::find(commands, first, &CommandInfo::name);
    if (command == commands.end()) {
        fmt::print(stderr, "fsdplan: unknown command \"{}\"{}\n", first,
                   did_you_mean(first, command_names()));
        return bad_input;
    }
    return run(**command, {words.begin() + 1, words.end()});
}

}  // namespace
}  // namespace fsdplan::cli

int main(int argc, char** argv) {
    using namespace fsdplan;
    keep_freed_memory();
    try {
        return cli::dispatch({argv + 1, argv + argc});
    } catch (const Error& error) {
        cli::print_faults(error);
        return error.kind() == ErrorKind::input ? cli::bad_input : cli::machine_lacks;
    } catch (const std::bad_alloc&) {
        fmt::print(stderr, "fsdplan: this machine has not enough memory for that input\n");
        return cli::machine_lacks;
    } catch (const std::exception& error) {
        fmt::print(stderr, "fsdplan: bug: {}\n", error.what());
        return cli::own_bug;
    }
}
