#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "fsdplan/execute.hpp"

namespace fsdplan {
namespace {

/// Of all ranks the value that is furthest from the prediction.
std::int64_t furthest(const std::vector<RankResult>& ranks, std::int64_t RankResult::*value,
                      std::int64_t predicted) {
    const auto distance = [&](const RankResult& rank) { return std::abs(rank.*value - predicted); };
    return std::ranges::max(ranks, {}, distance).*value;
}

PredictionError exact(std::string key, std::int64_t predicted, std::int64_t measured) {
    return {.key = std::move(key),
            .predicted = predicted,
            .measured = measured,
            .judged = true,
            .within = predicted == measured};
}

PredictionError judged(std::string key, std::int64_t predicted, std::int64_t measured, double tolerance) {
    PredictionError out{.key = std::move(key), .predicted = predicted, .measured = measured, .judged = true};
    const std::optional<double> relative = out.relative();
    out.within = relative ? std::abs(*relative) <= tolerance : measured == 0;
    return out;
}

/// Some memory waits for streams that use it, and so for times.
bool waits_for_streams(const Schedule& schedule) {
    return std::ranges::any_of(schedule.ops, [](const Op& op) { return op.kind == OpKind::use; });
}

/// Within the interval that was predicted, or nearly: it hangs on when the device is done with what is freed.
PredictionError reserved(const Run& predicted, const Execution& measured, double tolerance) {
    const Estimate interval = predicted.reserved_bytes.value_or(Estimate{});
    PredictionError out =
        judged("reserved_bytes", interval.value,
               furthest(measured.ranks, &RankResult::reserved_bytes, interval.value), tolerance);
    out.within = out.within || (interval.low <= out.measured && out.measured <= interval.high);
    return out;
}

/// "all_gather-1048576x4": full bytes and ranks.
std::string key_of(const CollectiveCall& call) {
    return std::string(name(call.kind)) + '-' + std::to_string(call.full_size().count) + 'x' +
           std::to_string(call.ranks);
}

}  // namespace

std::optional<double> PredictionError::relative() const {
    if (predicted == 0) {
        return std::nullopt;
    }
    return static_cast<double>(measured) / static_cast<double>(predicted) - 1.0;
}

std::vector<PredictionError> compare(const Schedule& schedule, const Run& predicted,
                                     const Execution& measured, const ComparisonOptions& options) {
    std::vector<PredictionError> out;
    const auto memory = [&](std::string key, std::int64_t RankResult::*value, std::int64_t expected) {
        return exact(std::move(key), expected, furthest(measured.ranks, value, expected));
    };
    out.push_back(memory("requested_bytes", &RankResult::requested_bytes,
                         program_memory(schedule).peak.allocated_bytes));
    out.push_back(
        memory("allocated_bytes", &RankResult::allocated_bytes, predicted.memory->peak.allocated_bytes));
    if (waits_for_streams(schedule)) {
        out.back() = judged("allocated_bytes", out.back().predicted, out.back().measured, options.tolerance);
    }
    out.push_back(memory("sent_bytes", &RankResult::sent_bytes, sent_bytes(traffic_of(schedule))));
    out.push_back(reserved(predicted, measured, options.tolerance));
    const std::int64_t slowest = std::ranges::max(measured.ranks, {}, &RankResult::step_ns).step_ns;
    out.push_back(judged("step_ns", predicted.step_ns.value, slowest, options.tolerance));
    out.back().judged = options.judge_times;
    out.push_back({.key = "exposed_ns",
                   .predicted = predicted.exposed_ns.value,
                   .measured = measured.run.exposed_ns.value});
    out.push_back(exact("out_of_memory_ranks", 0,
                        std::ranges::count(measured.ranks, true, &RankResult::out_of_memory)));
    for (std::size_t row = 0; row < schedule.collectives.size(); ++row) {
        const CollectiveTime& time = measured.run.collectives[row];
        if (time.ns.value > 0) {  // called in the last iteration
            out.push_back({.key = key_of(schedule.collectives[row]),
                           .predicted = predicted.collectives[row].ns.value,
                           .measured = time.ns.value});
        }
    }
    return out;
}

bool all_within(const std::vector<PredictionError>& errors) {
    return std::ranges::all_of(errors, [](const PredictionError& d) { return d.within || !d.judged; });
}

}  // namespace fsdplan
