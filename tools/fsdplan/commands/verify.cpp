#include "fsdplan/verify.hpp"

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "published_output.hpp"

namespace fsdplan::cli {
namespace {

struct VerifyOptions {
    std::vector<std::string> paths;
    bool json = false;
};

void print_text(const Verification& result) {
    for (const Difference& d : result.differences) {
        fmt::print("{}: {}\n  expected {}\n  got      {}\n", d.case_name, d.where, d.expected, d.got);
    }
    for (const Skip& skip : result.skips) {
        fmt::print("{}: skipped: {}\n", skip.case_name, skip.reason);
    }
    if (result.tables > 0) {
        fmt::print("{} tables of thresholds: {} match, {} differ\n", result.tables, result.tables_match,
                   result.tables - result.tables_match);
    }
    for (const Accuracy& a : accuracies(result)) {
        fmt::print(
            "{}, {} values: median error {:.2f} %, worst {:.2f} % ({}); within 0.5 %: {}, 2 %: {}, 5 %: {}\n",
            a.quantity, a.count, 100.0 * a.median, 100.0 * a.worst, a.worst_case, a.within_half_percent,
            a.within_two_percent, a.within_five_percent);
    }
    print_published(result);
    fmt::print("{} cases: {} match, {} differ, {} skipped\n", result.cases, result.match, result.differ,
               result.skipped);
}

void print_json(const Verification& result) {
    nlohmann::ordered_json out;
    out["cases"] = result.cases;
    out["match"] = result.match;
    out["differ"] = result.differ;
    out["skipped"] = result.skipped;
    out["tables"] = result.tables;
    out["tables_match"] = result.tables_match;
    out["differences"] = nlohmann::ordered_json::array();
    for (const Difference& d : result.differences) {
        out["differences"].push_back(
            {{"case", d.case_name}, {"where", d.where}, {"expected", d.expected}, {"got", d.got}});
    }
    out["skips"] = nlohmann::ordered_json::array();
    for (const Skip& skip : result.skips) {
        out["skips"].push_back({{"case", skip.case_name}, {"reason", skip.reason}});
    }
    out["deviations"] = nlohmann::ordered_json::array();
    for (const Deviation& d : result.deviations) {
        out["deviations"].push_back(
            {{"quantity", d.quantity}, {"case", d.case_name}, {"expected", d.expected}, {"got", d.got}});
    }
    add_published(result, out);
    fmt::print("{}\n", out.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

int run_verify(const VerifyOptions& options) {
    const Verification result = verify(options.paths);
    if (options.json) {
        print_json(result);
    } else {
        print_text(result);
    }
    return result.all_match() ? answered : answered_no;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo verify;
constinit const cli::CommandInfo verify{
    .name = "verify",
    .help = "replay recordings of the real PyTorch and count what differs",
    .example = "fsdplan verify tests/golden/wrap",
    .setup =
        [](cli::Arguments& arguments) {
            const auto options = std::make_shared<cli::VerifyOptions>();
            arguments.positional("DIR", options->paths, "folders or files with recordings");
            arguments.flag("--json", options->json, "print the result as JSON");
            return std::function<int()>([options] { return cli::run_verify(*options); });
        },
};

}  // namespace fsdplan::builtin::command
