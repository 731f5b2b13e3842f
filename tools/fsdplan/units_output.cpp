#include "units_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/quantity.hpp"

namespace fsdplan::cli {
namespace {

/// Units that are alike but for the numbers in their paths, as one row.
struct Row {
    const Unit* first = nullptr;
    std::int64_t count = 0;
    std::vector<std::string> steps;  // of the path; the numbers are emptied
    struct Range {
        std::int64_t low = 0;
        std::int64_t high = 0;
    };
    std::vector<Range> numbers;  // over all units of the row, in the order of the emptied steps
};

bool is_number(std::string_view step) {
    constexpr std::size_t longest = 9;
    return !step.empty() && step.size() <= longest &&
           std::ranges::all_of(step, [](unsigned char c) { return std::isdigit(c) != 0; });
}

Row row_of(const Unit& unit) {
    Row row{.first = &unit, .count = 1};
    std::string_view rest = unit.path;
    while (!rest.empty()) {
        const std::string_view step = rest.substr(0, rest.find('.'));
        rest.remove_prefix(std::min(rest.size(), step.size() + 1));
        if (is_number(step)) {
            const std::int64_t number = std::stoll(std::string(step));
            row.numbers.push_back({.low = number, .high = number});
            row.steps.emplace_back();
        } else {
            row.steps.emplace_back(step);
        }
    }
    return row;
}

bool alike(const ModuleTree& tree, const Row& a, const Row& b) {
    const Unit& x = *a.first;
    const Unit& y = *b.first;
    return a.steps == b.steps && x.numel == y.numel && x.parameters.size() == y.parameters.size() &&
           x.arguments == y.arguments && x.modules.size() == 1 && y.modules.size() == 1 &&
           tree.class_of[at(x.module)] == tree.class_of[at(y.module)];
}

std::vector<Row> folded(const ModuleTree& tree, const WrapPlan& plan) {
    std::vector<Row> rows;
    for (const Unit& unit : plan.units) {
        Row row = row_of(unit);
        const auto same = std::ranges::find_if(rows, [&](const Row& r) { return alike(tree, r, row); });
        if (same == rows.end()) {
            rows.push_back(std::move(row));
            continue;
        }
        ++same->count;
        for (std::size_t i = 0; i < row.numbers.size(); ++i) {
            same->numbers[i].low = std::min(same->numbers[i].low, row.numbers[i].low);
            same->numbers[i].high = std::max(same->numbers[i].high, row.numbers[i].high);
        }
    }
    return rows;
}

std::string shown_path(const ModuleTree& tree, const Row& row) {
    if (row.first->modules.size() > 1) {
        std::string all;
        for (const ModuleIndex m : row.first->modules) {
            all += (all.empty() ? "[" : ", ") + tree.path(m);
        }
        return all + "]";
    }
    if (row.count == 1) {
        return row.first->path.empty() ? "(root)" : row.first->path;
    }
    std::int64_t all_numbers = 1;
    for (const Row::Range& range : row.numbers) {
        all_numbers *= range.high - range.low + 1;
    }
    std::string out;
    auto range = row.numbers.begin();
    for (const std::string& step : row.steps) {
        out += out.empty() ? "" : ".";
        if (!step.empty()) {
            out += step;
            continue;
        }
        const bool fixed = range->low == range->high;
        out += fixed                      ? std::to_string(range->low)
               : all_numbers == row.count ? fmt::format("{}-{}", range->low, range->high)
                                          : "*";  // some are missing or different
        ++range;
    }
    return out;
}

std::string arguments_text(const Unit& unit) {
    std::string out;
    for (const auto& [name, value] : unit.arguments) {
        out += fmt::format("  {}={}", name, value);
    }
    return out;
}

void append_diagnostics(const WrapPlan& plan, std::string& out) {
    // One line a rule and severity: a rule that a block breaks is broken by all of its copies.
    std::vector<const Diagnostic*> first;
    std::vector<std::int64_t> count;
    for (const Diagnostic& d : plan.diagnostics) {
        const auto same = std::ranges::find_if(
            first, [&](const Diagnostic* f) { return f->rule == d.rule && f->severity == d.severity; });
        if (same == first.end()) {
            first.push_back(&d);
            count.push_back(1);
        } else {
            ++count[static_cast<std::size_t>(same - first.begin())];
        }
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
        const Diagnostic& d = *first[i];
        const std::string_view says = d.severity == Severity::error           ? "PyTorch refuses"
                                      : d.severity == Severity::forward_error ? "the first forward fails"
                                                                              : "warning";
        const std::string error = d.error_type + (d.error_text.empty() ? "" : ": " + d.error_text);
        out += fmt::format("{}{}: {}", says, error.empty() ? "" : " (" + error + ")", d.message);
        out += count[i] > 1 ? fmt::format(" (and {} more alike)\n", count[i] - 1) : "\n";
    }
}

}  // namespace

std::string units_text(const ModuleTree& tree, const WrapPlan& plan, bool fsdp2, const WrapOptions& options) {
    std::string out;
    std::int64_t managed = 0;
    std::int64_t with_parameters = 0;
    const Unit* largest = nullptr;
    for (const Unit& unit : plan.units) {
        managed += unit.numel;
        with_parameters += unit.parameters.empty() ? 0 : 1;
        largest = largest == nullptr || unit.numel > largest->numel ? &unit : largest;
    }
    append_diagnostics(plan, out);
    out += fmt::format("{} units under {}, {} with parameters, {} elements managed of {}\n",
                       plan.units.size(), fsdp2 ? "fully_shard (FSDP2)" : "FullyShardedDataParallel (FSDP1)",
                       with_parameters, show_integer(managed), show_integer(tree.numel[0]));
    if (largest != nullptr) {
        out += fmt::format("largest: {} with {} elements\n",
                           largest->path.empty() ? "the root" : largest->path, show_integer(largest->numel));
    }
    const bool flat = !fsdp2 && options.world_size > 1;
    out += fmt::format("\n{:>5}  {:<40} {:<28} {:>15} {:>7}{}\n", "units", "module", "class", "elements each",
                       "tensors", flat ? fmt::format(" {:>15}", "per rank") : "");
    for (const Row& row : folded(tree, plan)) {
        const Unit& unit = *row.first;
        out += fmt::format(
            "{:>5}  {:<40} {:<28} {:>15} {:>7}{}{}\n", row.count, shown_path(tree, row),
            short_name(tree.class_info(unit.module).name), show_integer(unit.numel), unit.parameters.size(),
            flat ? fmt::format(" {:>15}", show_integer(unit.shard_numel)) : "", arguments_text(unit));
    }
    return out;
}

std::string units_json(const ModuleTree& tree, const WrapPlan& plan, bool fsdp2, const WrapOptions& options) {
    using Json = nlohmann::ordered_json;
    Json out;
    out["format"] = "fsdplan.units";
    out["version"] = 1;
    out["model"] = tree.name;
    out["runtime"] = fsdp2 ? "fsdp2" : "fsdp1";
    out["use_orig_params"] = options.use_orig_params;
    out["world_size"] = options.world_size;
    out["rank"] = options.rank;
    out["complete"] = plan.complete;
    out["units"] = Json::array();
    for (const Unit& unit : plan.units) {
        Json row{{"module", unit.path},
                 {"class", tree.class_info(unit.module).name},
                 {"numel", unit.numel},
                 {"parameters", unit.parameter_paths}};
        if (unit.modules.size() > 1) {
            row["modules"] = Json::array();
            for (const ModuleIndex m : unit.modules) {
                row["modules"].push_back(tree.path(m));
            }
        }
        if (!fsdp2) {
            row["flat_numel"] = unit.flat_numel;
            row["shard_numel"] = unit.shard_numel;
        }
        row["requires_grad"] = unit.requires_grad;
        for (const auto& [name, value] : unit.arguments) {
            row["arguments"][name] = Json::parse(value);
        }
        out["units"].push_back(std::move(row));
    }
    out["diagnostics"] = Json::array();
    for (const Diagnostic& d : plan.diagnostics) {
        out["diagnostics"].push_back({{"rule", name(d.rule)},
                                      {"severity", name(d.severity)},
                                      {"error", d.error_type},
                                      {"error_text", d.error_text},
                                      {"unit", d.unit},
                                      {"tensors", d.tensors},
                                      {"message", d.message}});
    }
    return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fsdplan::cli
