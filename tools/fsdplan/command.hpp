#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "arguments.hpp"

namespace fsdplan::cli {

/// Exit statuses of every command.
enum Status : int {
    answered = 0,
    answered_no = 1,    ///< nothing fits, PyTorch would refuse, something differs
    bad_input = 2,      ///< the command line or an input is wrong
    machine_lacks = 3,  ///< no such device, no MPI, no NCCL, or a file that cannot be written
    own_bug = 4,        ///< a bug in fsdplan
};

/// One command of fsdplan. An entry is one file in tools/fsdplan/commands.
struct CommandInfo {
    std::string_view name;
    std::string_view help;     ///< one line
    std::string_view example;  ///< one real invocation
    /// Declares the arguments; the returned function runs after they are parsed.
    std::function<int()> (*setup)(Arguments& arguments);
};

}  // namespace fsdplan::cli

namespace fsdplan::builtin {
std::span<const cli::CommandInfo* const> commands();
}  // namespace fsdplan::builtin
