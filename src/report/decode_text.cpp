#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_ranks = 8;

std::string spaced(std::string_view name) {
    std::string text(name);
    std::ranges::replace(text, '_', ' ');
    return text;
}

std::string shown_shape(const std::vector<std::int64_t>& shape) {
    std::string text;
    for (const std::int64_t extent : shape) {
        text += (text.empty() ? "" : " x ") + show_integer(extent);
    }
    return text.empty() ? "a scalar" : text;
}

/// "model.layers.0", "model.layers.0 to model.layers.31"
std::string shown_units(const DecodeMatch& match) {
    const std::string first = shown_path(match.units.front());
    return match.units.size() == 1 ? first : first + " to " + shown_path(match.units.back());
}

std::string what_it_is(const DecodeMatch& match) {
    const std::string units = match.count == 1 ? "" : fmt::format(", one of {}", match.count);
    switch (match.part) {
        case DecodedPart::unit:
            return (match.parameter.empty()
                        ? fmt::format("all of {} {}", match.count == 1 ? "the" : "a", match.class_name)
                        : fmt::format("{} alone, {}", match.parameter, shown_shape(match.shape))) +
                   units + ": " + shown_units(match);
        case DecodedPart::shard:
            return fmt::format("one rank's piece of a {}'s gradients on its way across replicas{}: {}",
                               match.class_name, units, shown_units(match));
        case DecodedPart::bucket:
            return fmt::format(
                "{} of {}, one of {} of this size in a step",
                match.op == CollectiveKind::all_gather ? "some parameters" : "a bucket of gradients",
                match.units.empty() ? "the model" : shown_units(match), match.count);
        case DecodedPart::parameter:
            return fmt::format(
                "{} ({}{}), {}: no unit by itself; a state dict, or a parameter that is reduced alone",
                match.parameter, match.class_name, units, shown_shape(match.shape));
        case DecodedPart::small:
            return "of no unit: norms, counters or buffers";
    }
    return "";
}

std::string_view shown_pass(DecodedPass pass) {
    switch (pass) {
        case DecodedPass::construction:
            return "before the first step";
        case DecodedPass::forward:
            return "in forward";
        case DecodedPass::backward:
        case DecodedPass::reduction:
            return "in backward";
        case DecodedPass::step:
            return "after backward";
    }
    return "";
}

std::string_view verb(const DecodeMatch& match) {
    if (match.part == DecodedPart::small) {
        return "issued";
    }
    return match.op == CollectiveKind::all_gather ? "gathered" : "gradients reduced";
}

std::string when(const DecodeMatch& match) {
    std::string text(verb(match));
    for (auto pass = match.passes.begin(); pass != match.passes.end(); ++pass) {
        text += fmt::format("{} {}{}", pass == match.passes.begin() ? "" : " or", shown_pass(pass->first),
                            pass->second > 1 ? fmt::format(" ({} times)", pass->second) : std::string());
    }
    const StepPositions& at = match.positions;
    if (at.first == 0) {
        return text + "; in no step after the first";
    }
    return text + (at.first == at.last
                       ? fmt::format("; collective {} of the {} of a step", at.first, at.of)
                       : fmt::format("; collectives {} to {} of the {} of a step", at.first, at.last, at.of));
}

std::string shown_ranks(const DecodeResult& result, const Sighting& sighting) {
    std::set<std::int64_t> ranks;
    for (const std::size_t i : sighting.observed) {
        if (result.observed[i].rank) {
            ranks.insert(*result.observed[i].rank);
        }
    }
    if (ranks.empty()) {
        return "seen";
    }
    std::string text;
    std::size_t named = 0;
    for (const std::int64_t rank : ranks) {
        if (named++ < most_ranks) {
            text += (text.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    return (ranks.size() == 1 ? "rank " : "ranks ") + text +
           (ranks.size() > most_ranks ? fmt::format(" and {} more", ranks.size() - most_ranks) : "");
}

std::string shown_size(const std::optional<std::int64_t>& numel) {
    return numel ? show_integer(*numel) : std::string("?");
}

std::string shown_sighting(const DecodeResult& result, const Sighting& sighting) {
    const std::string op = sighting.op.empty() ? "a collective" : spaced(sighting.op);
    return wrapped(fmt::format("{}: {}, {} elements in, {} out", shown_ranks(result, sighting), op,
                               shown_size(sighting.input_numel), shown_size(sighting.output_numel)),
                   0) +
           "\n";
}

std::string indented(const std::string& text) {
    return "  " + wrapped(text, 2) + "\n";
}

std::string shown_near(const NearSize& near) {
    const std::int64_t distance = std::abs(near.distance);
    const std::string apart =
        distance == 0 ? std::string("the same size")
                      : fmt::format("{} element{} {}", show_integer(distance), distance == 1 ? "" : "s",
                                    near.distance > 0 ? "fewer" : "more");
    return fmt::format(
        "nearest, {}: {} of {} over {} ranks, {}", apart, spaced(name(near.op)), show_integer(near.numel),
        near.ranks, near.class_name.empty() ? "of no unit" : near.class_name + " " + shown_path(near.unit));
}

std::string shown_nearest(const DecodeResult& result, std::size_t sighting) {
    std::string text;
    for (const NearSize& near : result.nearest) {
        text += near.sighting == sighting ? indented(shown_near(near)) : std::string();
    }
    return text;
}

std::string sighting_lines(const DecodeResult& result, std::size_t s) {
    const Sighting& sighting = result.sightings[s];
    std::string text = shown_sighting(result, sighting);
    bool matched = false;
    for (const DecodeMatch& match : result.matches) {
        if (match.sighting == s) {
            matched = true;
            const std::string padding =
                match.padding > 0 ? fmt::format(", with {} elements of padding", show_integer(match.padding))
                                  : std::string();
            text += indented(what_it_is(match) + padding);
            text += match.passes.empty() ? std::string() : indented(when(match));
        }
    }
    if (!matched) {
        text += indented(sighting.full_numel() == 0 ? "nothing to go by: the log has no sizes of it"
                                                    : "no collective of this model has these sizes");
        text += shown_nearest(result, s);
    }
    return text;
}

}  // namespace

std::string text_report(const SweepQuestion& question, const DecodeResult& result) {
    std::string text;
    for (std::size_t s = 0; s < result.sightings.size(); ++s) {
        text += sighting_lines(result, s);
    }
    text += "\n" + row("Ranks", result.world_size ? fmt::format("{} share what is gathered or scattered",
                                                                *result.world_size)
                                                  : std::string("the sizes do not say how many"));
    text += row("In step", (!result.order.in_step   ? "cannot be told: "
                            : *result.order.in_step ? "yes: "
                                                    : "no: ") +
                               result.order.text);
    text +=
        row("Plan", result.tried == 0
                        ? std::string("none that PyTorch takes")
                        : fmt::format("{}, {} {}, {} units{}", result.label, result.job.runtime,
                                      name(result.job.strategy), result.units,
                                      result.tried > 1 ? fmt::format("; {} plans were tried", result.tried)
                                                       : std::string()));
    text += row("Model", fmt::format("{}, {} parameters", question.model.name,
                                     show_numel(question.tree.numel.front())));
    for (const std::string& note : result.notes) {
        text += wrapped("note: " + note, 6) + "\n";
    }
    return text;
}

}  // namespace fsdplan
