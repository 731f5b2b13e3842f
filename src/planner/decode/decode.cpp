#include "planner/decode/decode.hpp"

#include <algorithm>
#include <iterator>

#include "planner/decode/search.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_sightings = 100;

std::vector<Sighting> sightings_of(const std::vector<ObservedCollective>& observed) {
    std::vector<Sighting> out;
    for (std::size_t i = 0; i < observed.size(); ++i) {
        const ObservedCollective& seen = observed[i];
        Sighting sighting{.op = seen.kind ? std::string(name(*seen.kind)) : seen.op,
                          .kind = seen.kind,
                          .input_numel = seen.input_numel,
                          .output_numel = seen.output_numel};
        const auto same = std::ranges::find_if(out, [&](const Sighting& other) {
            return other.op == sighting.op && other.input_numel == sighting.input_numel &&
                   other.output_numel == sighting.output_numel;
        });
        (same == out.end() ? out.emplace_back(std::move(sighting)) : *same).observed.push_back(i);
        if (out.size() > most_sightings) {
            throw Error(ErrorKind::input, "decode",
                        "more than 100 different collectives; give the lines of one timeout");
        }
    }
    return out;
}

void explain(const ModuleTree& tree, const DecodedPlan& plan, const DecodeSearch& search, DecodeResult& out) {
    const std::int64_t ranks = out.world_size.value_or(plan.job.mesh.ranks());
    for (std::size_t s = 0; s < out.sightings.size(); ++s) {
        const Sighting& seen = out.sightings[s];
        std::vector<DecodeMatch> matches = matches_of(tree, plan.wrap, plan.calls, seen, s);
        if (matches.empty()) {
            matches = parameters_like(tree, ranks, seen, s);
        }
        if (matches.empty()) {
            std::ranges::copy(search.near[s], std::back_inserter(out.nearest));
        }
        std::ranges::move(matches, std::back_inserter(out.matches));
    }
}

/// Observations with the group of ranks that their match belongs to where the log names none: those that
/// share a unit and those that replicate it count apart.
std::vector<ObservedCollective> with_groups(const DecodeResult& result) {
    std::vector<ObservedCollective> observed = result.observed;
    if (!is_hybrid(result.job.strategy)) {
        return observed;
    }
    for (const DecodeMatch& match : result.matches) {
        for (const std::size_t i : result.sightings[match.sighting].observed) {
            if (observed[i].group.empty()) {
                observed[i].group = match.group == RankGroup::replicate ? "replicate" : "shard";
            }
        }
    }
    return observed;
}

void note_sizes(DecodeResult& out) {
    if (out.world_size && out.job.mesh.shard > 1 && *out.world_size != out.job.mesh.shard) {
        out.notes.push_back("the sizes say that " + std::to_string(*out.world_size) +
                            " ranks share a parameter, the job that " + std::to_string(out.job.mesh.shard) +
                            " do");
    }
    for (const Sighting& seen : out.sightings) {
        const bool shares =
            seen.kind == CollectiveKind::all_gather || seen.kind == CollectiveKind::reduce_scatter;
        const std::int64_t less = std::min(seen.input_numel.value_or(0), seen.output_numel.value_or(0));
        if (shares && less > 0 && seen.full_numel() % less != 0) {
            out.notes.push_back(std::to_string(seen.full_numel()) + " is no multiple of " +
                                std::to_string(less) + ": ranks that share evenly have no such sizes");
        }
    }
}

/// Ranks of one group that say nothing: it may be them that the others wait for.
void note_silent_ranks(DecodeResult& out) {
    constexpr std::size_t most_named = 8;
    std::vector<std::int64_t> heard;
    for (const ObservedCollective& seen : out.observed) {
        if (seen.rank) {
            heard.push_back(*seen.rank);
        }
    }
    const bool one_group = out.world_size && !heard.empty() && std::ranges::max(heard) < *out.world_size;
    if (!one_group || heard.size() < 2) {
        return;
    }
    std::string silent;
    std::size_t count = 0;
    for (std::int64_t rank = 0; rank < *out.world_size; ++rank) {
        if (std::ranges::find(heard, rank) == heard.end() && count++ < most_named) {
            silent += (silent.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    if (count > 0) {
        out.notes.push_back(
            (count == 1 ? "rank " : "ranks ") + silent +
            (count > most_named ? " and " + std::to_string(count - most_named) + " more" : "") +
            (count == 1 ? " is" : " are") + " not in these lines: the others may be waiting for " +
            (count == 1 ? "it" : "them"));
    }
}

}  // namespace

std::string_view name(DecodedPart part) {
    switch (part) {
        case DecodedPart::unit:
            return "unit";
        case DecodedPart::shard:
            return "shard";
        case DecodedPart::bucket:
            return "bucket";
        case DecodedPart::parameter:
            return "parameter";
        case DecodedPart::small:
            return "small";
    }
    return "";
}

std::string_view name(DecodedPass pass) {
    switch (pass) {
        case DecodedPass::construction:
            return "construction";
        case DecodedPass::forward:
            return "forward";
        case DecodedPass::backward:
            return "backward";
        case DecodedPass::reduction:
            return "reduction";
        case DecodedPass::step:
            return "step";
    }
    return "";
}

bool DecodeResult::complete() const {
    std::vector<char> matched(sightings.size(), 0);
    for (const DecodeMatch& match : matches) {
        matched[match.sighting] = 1;
    }
    return std::ranges::all_of(matched, [](char m) { return m != 0; });
}

DecodeResult decode(const DecodeQuestion& question) {
    const SweepQuestion& about = question.about;
    check(about.jobs.front(), about.cluster.gpus);
    DecodeResult out;
    out.observed = question.observed;
    out.sightings = sightings_of(question.observed);
    out.world_size = sharing_ranks(question.observed);
    out.job = about.jobs.front();
    const DecodeSearch search = search_plans(question, out.sightings);
    out.tried = search.tried;
    if (search.best) {
        out.job = search.best->job;
        out.units = static_cast<std::int64_t>(search.best->wrap.units.size());
        out.label =
            runtime(out.job.runtime).has_units ? label_of(about.tree, search.best->wrap) : "whole model";
        explain(about.tree, *search.best, search, out);
    }
    if (!search.refusal.empty()) {
        out.notes.push_back("PyTorch refuses the asked units: " + search.refusal);
    }
    out.order = rank_order(with_groups(out));
    note_sizes(out);
    note_silent_ranks(out);
    return out;
}

}  // namespace fsdplan
