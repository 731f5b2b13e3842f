#include "fsdplan/report.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/file.hpp"
#include "command.hpp"
#include "fsdplan/base.hpp"

namespace fsdplan::cli {
namespace {

struct ReportOptions {
    std::string result;
    std::string out;
};

int write_report(const ReportOptions& options) {
    const std::string ending = std::filesystem::path(options.out).extension().string();
    if (!options.out.empty() && ending != ".html" && ending != ".htm") {
        throw Error(ErrorKind::input, "-o " + options.out, "expected a name that ends in .html");
    }
    const std::string json = read_text(options.result);
    check_result(json, options.result);
    const std::string page = html_report(json);
    if (options.out.empty()) {
        fmt::print("{}", page);
    } else {
        write_file(options.out, page);
    }
    return answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo report;
constinit const cli::CommandInfo report{
    .name = "report",
    .help = "a result as one HTML page that needs nothing else",
    .example = "fsdplan report sweep.json -o sweep.html",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::ReportOptions>();
        arguments.positional("RESULT", options->result, "JSON that a command wrote with -o or --json");
        arguments.option("-o,--output", options->out, "the page's file, .html; standard output without it",
                         "FILE");
        return [options] { return cli::write_report(*options); };
    },
};

}  // namespace fsdplan::builtin::command
