#include <fmt/core.h>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"
#include "report/checkpoint_parts.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

std::string shown_ranks(const std::vector<std::int64_t>& ranks) {
    constexpr std::size_t most = 8;
    std::string text;
    for (std::size_t i = 0; i < ranks.size() && i < most; ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    return ranks.size() > most ? fmt::format("{}, … ({} ranks)", text, ranks.size()) : text;
}

std::string code_lines(const CheckpointFormat& format) {
    std::string text = "\nTo save with " + std::string(format.type) + ":\n";
    const std::string code = checkpoint_code(format);
    for (std::size_t begin = 0; begin < code.size();) {
        const std::size_t end = code.find('\n', begin);
        text += "  " + code.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    return text;
}

std::string load_lines(const CheckpointLoad& load) {
    const Compatibility& found = load.found;
    std::string text =
        "\n" +
        wrapped(fmt::format("Saved by {} and loaded by {}: {}", load.save, load.load, name(found.outcome)),
                0) +
        "\n";
    if (!found.error_class.empty()) {
        text += row("Raises", fmt::format("{}{} in {}, on rank {}", found.error_class,
                                          found.cause_class.empty() ? "" : " around " + found.cause_class,
                                          found.stage, shown_ranks(found.ranks)));
    }
    text += found.reason.empty() ? "" : row("Reason", found.reason);
    if (found.model_wrong + found.optimizer_wrong > 0) {
        text += row("Wrong",
                    fmt::format("{} of {} tensors of the model, {} of {} of the optimizer", found.model_wrong,
                                found.model_tensors, found.optimizer_wrong, found.optimizer_tensors));
    }
    for (const std::string& note : found.notes) {
        text += row("Note", note);
    }
    return text + (load.remedy.empty() ? "" : row("Instead", load.remedy));
}

std::string mismatch_lines(const ShapeMismatch& mismatch) {
    std::string text = "\n" + row("Mismatch", fmt::format("the checkpoint holds: {}; the model shows: {}",
                                                          mismatch.saved, mismatch.current));
    if (mismatch.ranks > 1) {
        text += row("", fmt::format("one is the other's piece on {} ranks", mismatch.ranks));
    }
    return text + (mismatch.remedy.empty() ? "" : row("Instead", mismatch.remedy));
}

}  // namespace

std::string checkpoint_table(const CheckpointPlan& plan) {
    std::string text = fmt::format("{:<19}{:>10}{:>10}{:>10}{:>10}{:>8}{:>10}  {}\n", "way to save", "device",
                                   "host", "node", "written", "calls", "time", "");
    for (std::size_t i = 0; i < plan.costs.size(); ++i) {
        const CheckpointCost& cost = plan.costs[i];
        const std::string type(cost.format->type);
        if (cost.refused) {
            text +=
                fmt::format("{:<19}{}\n", type, fitted("refused: " + cost.refused->reason, text_width - 19));
            continue;
        }
        std::string remark = plan.recommended == i ? "choose" : "";
        if (!cost.fits(plan.resident_bytes, plan.budget_bytes)) {
            remark = "runs out";
        } else if (cost.exceeds_timeout) {
            remark = "times out";
        }
        text += fmt::format("{:<19}{:>10}{:>10}{:>10}{:>10}{:>8}{:>10}  {}\n", type,
                            show_bytes(cost.save.device_peak_bytes), show_bytes(cost.save.host_peak_bytes),
                            show_bytes(cost.save.host_node_bytes), show_bytes(cost.written_bytes),
                            cost.save.collectives, show_duration(cost.time_ns.value), remark);
    }
    return text;
}

std::string text_report(const SweepQuestion& question, const CheckpointResult& result) {
    const CheckpointPlan& plan = result.checkpoint;
    std::string text =
        wrapped(plan.verdict, 0) + "\n\n" + question_lines(question, question.jobs.front()) + "\n";
    text += row("Plan", plan.label);
    text += row("Resident", fmt::format("{} of {} stay in device memory between steps",
                                        show_bytes(plan.resident_bytes), show_bytes(plan.budget_bytes)));
    text += "\n" + checkpoint_table(plan);
    text += wrapped(
                "device: most above what is resident, on any rank; host: on any rank; node: on the node that "
                "needs most; written: by all ranks; calls: collectives of a rank; time: estimated, of the "
                "pause in training",
                0) +
            "\n";
    if (const std::optional<std::size_t> shown = plan.asked ? plan.asked : plan.recommended) {
        text += code_lines(*plan.costs[*shown].format);
    }
    text += result.load ? load_lines(*result.load) : "";
    return text + (result.mismatch ? mismatch_lines(*result.mismatch) : "");
}

}  // namespace fsdplan
