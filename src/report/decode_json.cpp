#include "fsdplan/report.hpp"
#include "report/json_parts.hpp"

namespace fsdplan {
namespace {

void write_known(JsonWriter& out, std::string_view key, const std::optional<std::int64_t>& number) {
    out.key(key);
    if (number) {
        out.value(*number);
    } else {
        out.null();
    }
}

void write_observed(JsonWriter& out, const DecodeResult& result) {
    std::vector<std::size_t> sighting_of(result.observed.size(), 0);
    for (std::size_t s = 0; s < result.sightings.size(); ++s) {
        for (const std::size_t i : result.sightings[s].observed) {
            sighting_of[i] = s;
        }
    }
    out.key("collectives").begin_array();
    for (std::size_t i = 0; i < result.observed.size(); ++i) {
        const ObservedCollective& seen = result.observed[i];
        out.begin_object(true);
        write_known(out, "rank", seen.rank);
        out.member("group", seen.group);
        write_known(out, "sequence", seen.sequence);
        out.member("op", seen.op);
        write_known(out, "input_numel", seen.input_numel);
        write_known(out, "output_numel", seen.output_numel);
        write_known(out, "last_enqueued", seen.last_enqueued);
        write_known(out, "last_completed", seen.last_completed);
        out.member("sighting", static_cast<std::int64_t>(sighting_of[i]));
        out.end_object();
    }
    out.end_array();
}

void write_match(JsonWriter& out, const DecodeMatch& match) {
    out.begin_object();
    out.member("sighting", static_cast<std::int64_t>(match.sighting));
    out.member("op", name(match.op)).member("part", name(match.part));
    out.member("across_replicas", match.group == RankGroup::replicate);
    out.member("unit", match.units.empty() ? std::string() : match.units.front());
    out.key("units").begin_array();
    for (const std::string& unit : match.units) {
        out.value(unit);
    }
    out.end_array();
    out.member("class", match.class_name).member("count", match.count);
    out.member("numel", match.numel).member("padding", match.padding);
    out.member("parameter", match.parameter);
    out.key("shape").begin_array(true);
    for (const std::int64_t extent : match.shape) {
        out.value(extent);
    }
    out.end_array();
    out.key("passes").begin_object(true);
    for (const auto& [pass, count] : match.passes) {
        out.member(name(pass), count);
    }
    out.end_object();
    out.key("positions").begin_object(true);
    out.member("first", match.positions.first).member("last", match.positions.last);
    out.member("of", match.positions.of);
    out.end_object();
    out.end_object();
}

}  // namespace

std::string json_report(const SweepQuestion& question, const DecodeResult& result, std::string_view version) {
    JsonWriter out = begin_result("decode", version);
    write_model(out, question);
    write_job(out, question, result.job);
    write_assumptions(out, result.assumptions);
    out.member("plan", result.label).member("units", result.units).member("plans_tried", result.tried);
    write_known(out, "world_size", result.world_size);
    write_observed(out, result);
    out.key("matches").begin_array();
    for (const DecodeMatch& match : result.matches) {
        write_match(out, match);
    }
    out.end_array();
    out.key("nearest").begin_array();
    for (const NearSize& near : result.nearest) {
        out.begin_object(true);
        out.member("sighting", static_cast<std::int64_t>(near.sighting)).member("op", name(near.op));
        out.member("unit", near.unit).member("class", near.class_name);
        out.member("group_size", near.ranks).member("numel", near.numel).member("distance", near.distance);
        out.end_object();
    }
    out.end_array();
    write_truth(out, "ranks_in_step", result.order.in_step);
    out.member("in_step_reason", result.order.text);
    out.key("notes").begin_array();
    for (const std::string& note : result.notes) {
        out.value(note);
    }
    out.end_array();
    out.end_object();
    return out.take();
}

}  // namespace fsdplan
