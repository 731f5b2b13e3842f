#include <fmt/core.h>

#include <string>

#include "command.hpp"
#include "fsdplan/schedule.hpp"
#include "fsdplan/verify.hpp"
#include "fsdplan/wrap.hpp"
#include "model/family.hpp"
#include "model/importer.hpp"

namespace fsdplan::cli {
namespace {

void print_entry(std::string_view name, std::string_view help) {
    fmt::print("  {:<34}{}\n", name, help);
}

int print_registries() {
    fmt::print("policies (--policy)\n");
    print_entry("none", "only the root is a unit");
    print_entry("blocks", "the repeated blocks of the model, as a ModuleWrapPolicy");
    print_entry("class:CLASS[,CLASS…]", "every instance of these classes (ModuleWrapPolicy)");
    print_entry("rules:FILE", "ordered rules, first match wins (CustomPolicy)");
    print_entry("calls:FILE", "FSDP or fully_shard calls, in order");
    for (const PolicyInfo* policy : builtin::policies()) {
        print_entry(policy->syntax, policy->help);
    }
    fmt::print("\nruntimes (--runtime)\n");
    for (const RuntimeInfo* runtime : runtimes()) {
        print_entry(runtime->name, runtime->help);
    }
    fmt::print("\nmodel files\n");
    for (const ImporterInfo* importer : builtin::importers()) {
        print_entry(importer->name, importer->help);
    }
    fmt::print("\nmodel types of config.json, as transformers 5.24 builds them\n ");
    for (const FamilyInfo* family : builtin::families()) {
        for (const std::string_view type : family->model_types) {
            fmt::print(" {}", type);
        }
    }
    fmt::print("\n\nrecordings (verify)\n");
    for (const RecordingInfo* recording : builtin::recordings()) {
        print_entry(recording->name, recording->help);
    }
    return answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo list;
constinit const cli::CommandInfo list{
    .name = "list",
    .help = "the policies, runtimes, model formats and recordings that are built in",
    .example = "fsdplan list",
    .setup = [](cli::Arguments&) { return std::function<int()>(cli::print_registries); },
};

}  // namespace fsdplan::builtin::command
