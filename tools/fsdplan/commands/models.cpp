#include <fmt/core.h>

#include "command.hpp"
#include "fsdplan/model.hpp"

namespace fsdplan::cli {
namespace {

int print_models() {
    for (const LibraryModel& model : library_models()) {
        std::string aliases;
        for (const std::string& alias : model.aliases) {
            aliases += (aliases.empty() ? "" : ", ") + alias;
        }
        fmt::print("{:<48} {}\n", model.folder, aliases);
    }
    return answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo models;
constinit const cli::CommandInfo models{
    .name = "models",
    .help = "the models of the library, with the names that other commands take",
    .example = "fsdplan models",
    .setup = [](cli::Arguments&) { return std::function<int()>(cli::print_models); },
};

}  // namespace fsdplan::builtin::command
