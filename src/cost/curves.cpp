#include "cost/curves.hpp"

#include <algorithm>
#include <utility>

#include "cost/file_values.hpp"

namespace fsdplan {
namespace {

CollectiveKind kind_of(const json::Value& value) {
    if (const auto kind = find_curve_kind(value.string())) {
        return *kind;
    }
    value.fail("\"all_gather\", \"reduce_scatter\" or \"all_reduce\"");
}

CollectiveCurve read_curve(const json::Value& object) {
    object.allow_only({"id", "collective", "ranks", "nodes", "points", "lines", "busbw_GBps", "error",
                       "samples", "source"});
    CollectiveCurve curve;
    curve.id = object.at("id").string();
    curve.kind = kind_of(object.at("collective"));
    curve.ranks = object.at("ranks").integer(2, most_gpus);
    curve.nodes = object.at("nodes").integer(1, curve.ranks);
    curve.source = text_or(object, "source", "");
    if (const auto points = object.find("points")) {
        for (const json::Value point : points->elements()) {
            const auto pair = point.elements();
            if (point.size() != 2) {
                point.fail("a pair of bytes and microseconds");
            }
            auto item = pair.begin();
            const double bytes = positive(*item);
            ++item;
            if (!curve.points.empty() && bytes <= curve.points.back().bytes) {
                point.fail("sizes that rise");
            }
            curve.points.push_back({.bytes = bytes, .us = positive(*item)});
        }
    }
    if (const auto lines = object.find("lines")) {
        for (const json::Value line : lines->elements()) {
            if (line.size() != 2) {
                line.fail("a pair of microseconds and GB/s");
            }
            auto item = line.elements().begin();
            const double us = not_negative(*item);
            ++item;
            curve.lines.push_back({.us = us, .bytes_per_us = positive(*item) * 1e3});
        }
    }
    if (const auto plateau = object.find("busbw_GBps")) {
        curve.plateau_bytes_per_s = positive(*plateau) * giga;
    }
    if (curve.points.size() < 2 && curve.lines.empty() && curve.plateau_bytes_per_s == 0.0) {
        object.fail("two or more points, lines, or busbw_GBps");
    }
    return curve;
}

}  // namespace

std::optional<CollectiveKind> find_curve_kind(std::string_view named) {
    const auto found = std::ranges::find(curve_kinds, named, [](CollectiveKind kind) { return name(kind); });
    return found == curve_kinds.end() ? std::nullopt : std::optional(*found);
}

std::vector<CollectiveCurve> read_curves(const json::Value& array) {
    std::vector<CollectiveCurve> curves;
    for (const json::Value curve : array.elements()) {
        curves.push_back(read_curve(curve));
    }
    return curves;
}

void put_in_front(std::vector<CollectiveCurve> measured, std::vector<CollectiveCurve>& curves) {
    std::erase_if(curves, [&](const CollectiveCurve& own) {
        return std::ranges::any_of(measured, [&](const CollectiveCurve& curve) {
            return curve.kind == own.kind && curve.ranks == own.ranks && curve.nodes == own.nodes;
        });
    });
    measured.insert(measured.end(), std::make_move_iterator(curves.begin()),
                    std::make_move_iterator(curves.end()));
    curves = std::move(measured);
}

}  // namespace fsdplan
