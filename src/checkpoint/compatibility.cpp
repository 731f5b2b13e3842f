#include "fsdplan/compatibility.hpp"

#include <algorithm>

#include "checkpoint/load_model.hpp"
#include "checkpoint/load_optimizer.hpp"
#include "checkpoint/reasons.hpp"

namespace fsdplan {
namespace {

/// A failure is the whole answer, whatever was found before.
void report(const Failure& failure, Compatibility& out) {
    out = {};
    out.outcome = failure.stage == "after_load" ? Outcome::silent : Outcome::error;
    out.stage = failure.stage;
    out.error_class = failure.error_class;
    out.cause_class = failure.cause_class;
    out.code = failure.code;
    out.reason = reason_of(failure.code);
    out.ranks = failure.ranks;
    if (out.outcome == Outcome::silent) {
        out.wrong_kinds = {"unusable"};
        out.notes.emplace_back("the load raises nothing, the next gather of the optimizer state does");
    }
}

Failure with_ranks(Failure failure, const std::vector<std::int64_t>& more) {
    failure.ranks.insert(failure.ranks.end(), more.begin(), more.end());
    std::ranges::sort(failure.ranks);
    failure.ranks.erase(std::unique(failure.ranks.begin(), failure.ranks.end()), failure.ranks.end());
    return failure;
}

/// FSDP1 broadcasts while it wraps; a tie that only rank 0 has makes the ranks send different sizes.
std::optional<Failure> sync_failure(const CheckpointSide& to, const LoadRoute& route) {
    if (route.model != ModelLoader::rank0_sync || !Names(to.layout).has_ties()) {
        return std::nullopt;
    }
    Failure failure = on_all_ranks(to, "after_load", "ProcessKilled", "process_killed");
    failure.ranks = {0};
    return failure;
}

void conclude(Compatibility& out) {
    if (out.loses_bits) {
        out.notes.emplace_back("values rounded to the loader's dtype, no message");
    }
    if (out.untouched > 0) {
        out.notes.push_back(std::to_string(out.untouched) +
                            " model tensors are not in the checkpoint and keep their values, no message");
    }
    if (out.model_wrong + out.optimizer_wrong + out.untouched > 0 || out.loses_bits) {
        out.outcome = Outcome::silent;
    }
}

}  // namespace

std::string_view name(Outcome outcome) {
    switch (outcome) {
        case Outcome::ok:
            return "ok";
        case Outcome::error:
            return "error";
        case Outcome::silent:
            return "silent";
    }
    return "";
}

Compatibility compatibility(const CheckpointSide& from, const SaveRoute& save, const CheckpointSide& to,
                            const LoadRoute& load) {
    Compatibility out;
    if (const auto failure = save_failure(from, save)) {
        report(*failure, out);
        return out;
    }
    const SavedCheckpoint saved(from, save);
    if (const auto failure = model_failure(saved, to, load)) {
        // Ranks that loaded the model go on to the optimizer, and may fail there first.
        const bool first_rank_goes_on =
            failure->ranks.front() != 0 && failure->code != "file_absent" && to.has_optimizer();
        Compatibility elsewhere;
        const auto later =
            first_rank_goes_on ? load_optimizer(saved, to, load, elsewhere) : std::optional<Failure>{};
        report(later && later->stage == "load_optim" ? with_ranks(*later, failure->ranks) : *failure, out);
        return out;
    }
    if (const auto failure = sync_failure(to, load)) {
        report(*failure, out);
        return out;
    }
    judge_model(saved, to, load, out);
    if (to.has_optimizer() && load.optimizer != OptimizerLoader::none) {
        if (const auto failure = load_optimizer(saved, to, load, out)) {
            report(*failure, out);
            return out;
        }
    }
    conclude(out);
    return out;
}

}  // namespace fsdplan
