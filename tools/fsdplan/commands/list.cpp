#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "fsdplan/schedule.hpp"
#include "fsdplan/verify.hpp"
#include "fsdplan/wrap.hpp"
#include "model/family.hpp"
#include "model/importer.hpp"
#include "schedule/optimizer.hpp"

namespace fsdplan::cli {
namespace {

void print_entry(std::string_view name, std::string_view help) {
    fmt::print("  {:<34}{}\n", name, help);
}

void print_policies() {
    fmt::print("policies (--policy)\n");
    print_entry("none", "only the root is a unit");
    print_entry("blocks", "the repeated blocks of the model, as a ModuleWrapPolicy");
    print_entry("class:CLASS[,CLASS…]", "every instance of these classes (ModuleWrapPolicy)");
    print_entry("rules:FILE", "ordered rules, first match wins (CustomPolicy)");
    print_entry("calls:FILE", "FSDP or fully_shard calls, in order");
    for (const PolicyInfo* policy : builtin::policies()) {
        print_entry(policy->syntax, policy->help);
    }
}

void print_runtimes() {
    fmt::print("runtimes (--runtime)\n");
    for (const RuntimeInfo* runtime : runtimes()) {
        print_entry(runtime->name, runtime->help);
    }
}

void print_optimizers() {
    fmt::print("optimizers (--optimizer), NAME or NAME:IMPLEMENTATION\n");
    for (const OptimizerInfo* entry : optimizers()) {
        std::vector<std::string_view> words;
        for (const Optimizer::Implementation implementation : entry->implementations) {
            words.push_back(name(implementation));
        }
        print_entry(entry->name,
                    fmt::format("{}{}{}", entry->help, words.empty() ? "" : "; ", fmt::join(words, ", ")));
    }
}

void print_files() {
    fmt::print("model files\n");
    for (const ImporterInfo* importer : builtin::importers()) {
        print_entry(importer->name, importer->help);
    }
}

void print_types() {
    fmt::print("model types of config.json, as transformers 5.24 builds them\n ");
    for (const FamilyInfo* family : builtin::families()) {
        for (const std::string_view type : family->model_types) {
            fmt::print(" {}", type);
        }
    }
    fmt::print("\n");
}

void print_recordings() {
    fmt::print("recordings (verify)\n");
    for (const RecordingInfo* recording : builtin::recordings()) {
        print_entry(recording->name, recording->help);
    }
}

void print_version_numbers() {
    fmt::print("versions of PyTorch (--torch)\n ");
    for (const TorchBehaviour& known : torch_versions()) {
        fmt::print(" {}", known.version);
    }
    fmt::print("\n");
}

/// A name and words behind it, in lines that fit a terminal.
void print_wrapped(std::string_view name, std::string_view words) {
    constexpr std::size_t name_width = 8;
    constexpr std::size_t line_width = 90;
    std::string line;
    std::string_view label = name;
    const auto print_line = [&] {
        fmt::print("  {:<{}}{}\n", label, name_width, line);
        label = "";
    };
    while (!words.empty()) {
        const std::size_t length = std::min(words.find(' '), words.size());
        if (!line.empty() && line.size() + 1 + length > line_width) {
            print_line();
            line.clear();
        }
        line += (line.empty() ? "" : " ") + std::string(words.substr(0, length));
        words.remove_prefix(std::min(length + 1, words.size()));
    }
    print_line();
}

void print_versions() {
    fmt::print("versions of PyTorch (--torch), {} unless another is given\n", newest_torch);
    for (const TorchBehaviour& known : torch_versions()) {
        print_wrapped(known.version, known.summary);
    }
    fmt::print("FullyShardedDataParallel and the rules of wrapping are the same in all of them.\n");
}

/// A part of what is built in.
struct Topic {
    std::string_view name;
    void (*print)();
    void (*print_among_all)() = print;
};

constexpr std::array<Topic, 7> topics{{
    {.name = "policies", .print = print_policies},
    {.name = "runtimes", .print = print_runtimes},
    {.name = "optimizers", .print = print_optimizers},
    {.name = "files", .print = print_files},
    {.name = "types", .print = print_types},
    {.name = "recordings", .print = print_recordings},
    {.name = "versions", .print = print_versions, .print_among_all = print_version_numbers},
}};

std::vector<std::string> topic_names() {
    std::vector<std::string> names;
    for (const Topic& topic : topics) {
        names.emplace_back(topic.name);
    }
    return names;
}

int print_all() {
    for (const Topic& topic : topics) {
        fmt::print("{}", &topic == &topics.front() ? "" : "\n");
        topic.print_among_all();
    }
    return answered;
}

int run_list(const std::optional<std::string>& wanted) {
    if (!wanted) {
        return print_all();
    }
    const auto topic = std::ranges::find(topics, *wanted, &Topic::name);
    if (topic == topics.end()) {
        throw Error(ErrorKind::input, "list",
                    fmt::format("unknown topic \"{}\"; expected one of {}{}", *wanted,
                                fmt::join(topic_names(), ", "), did_you_mean(*wanted, topic_names())));
    }
    topic->print();
    return answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo list;
constinit const cli::CommandInfo list{
    .name = "list",
    .help =
        "the policies, runtimes, optimizers, model formats, recordings and PyTorch versions that are built "
        "in",
    .example = "fsdplan list versions",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto topic = std::make_shared<std::optional<std::string>>();
        arguments.positional("TOPIC", *topic,
                             fmt::format("{}; all of them", fmt::join(cli::topic_names(), ", ")));
        return [topic] { return cli::run_list(*topic); };
    },
};

}  // namespace fsdplan::builtin::command
