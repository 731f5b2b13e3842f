#include "base/json.hpp"

#include <set>

#include "planner/decode/decode.hpp"

namespace fsdplan {
namespace {

std::optional<std::int64_t> size_in(const json::Value& object, std::string_view key) {
    const std::optional<json::Value> value = object.given(key);
    return value ? std::optional(value->integer(0, largest_total)) : std::nullopt;
}

ObservedCollective listed(const json::Value& entry) {
    entry.allow_only({"rank", "group", "sequence", "op", "numel_in", "numel_out"});
    ObservedCollective seen;
    seen.rank = size_in(entry, "rank");
    seen.sequence = size_in(entry, "sequence");
    if (const auto group = entry.given("group")) {
        seen.group = group->string();
    }
    seen.op = entry.at("op").string();
    seen.kind = collective_kind(seen.op);
    seen.input_numel = size_in(entry, "numel_in");
    seen.output_numel = size_in(entry, "numel_out");
    return seen;
}

/// Elements of a list of shapes together: a coalesced collective has several tensors.
std::int64_t numel_of(const json::Value& shapes) {
    std::int64_t sum = 0;
    for (const json::Value shape : shapes.elements()) {
        std::int64_t numel = 1;
        for (const json::Value extent : shape.elements()) {
            numel = checked_mul(numel, extent.integer(0, largest_total), extent.where());
        }
        sum = checked_add(sum, numel, shape.where());
    }
    return sum;
}

/// The oldest collective of each process group that has not completed: what the watchdog would have named.
std::vector<ObservedCollective> recorded(const json::Value& dump) {
    std::vector<ObservedCollective> found;
    std::set<std::string> groups;
    for (const json::Value entry : dump.at("entries").elements()) {
        if (entry.at("state").string() == "completed") {
            continue;
        }
        ObservedCollective seen;
        seen.rank = size_in(dump, "rank");
        for (const std::string& word : entry.at("process_group").strings()) {
            seen.group += (seen.group.empty() ? "" : " ") + word;
        }
        if (!groups.insert(seen.group).second) {
            continue;
        }
        seen.sequence = size_in(entry, "collective_seq_id");
        seen.op = entry.at("profiling_name").string();
        seen.kind = collective_kind(seen.op);
        seen.input_numel = numel_of(entry.at("input_sizes"));
        seen.output_numel = numel_of(entry.at("output_sizes"));
        found.push_back(std::move(seen));
    }
    return found;
}

}  // namespace

std::vector<ObservedCollective> collectives_in_json(std::string_view text, const std::string& where) {
    const json::Document document(text, where);
    if (document.root().is_object()) {
        return recorded(document.root());
    }
    std::vector<ObservedCollective> found;
    for (const json::Value entry : document.root().elements()) {
        found.push_back(listed(entry));
    }
    return found;
}

}  // namespace fsdplan
