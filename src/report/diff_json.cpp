#include "fsdplan/diff.hpp"
#include "report/json_parts.hpp"

namespace fsdplan {
namespace {

void write(JsonWriter& out, std::string_view key, const DiffValue& value) {
    out.key(key);
    if (const auto* whole = std::get_if<std::int64_t>(&value)) {
        out.value(*whole);
    } else if (const auto* real = std::get_if<double>(&value)) {
        out.value(*real);
    } else if (const auto* truth = std::get_if<bool>(&value)) {
        out.value(*truth);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
        out.value(*text);
    } else {
        out.null();
    }
}

void write_rows(JsonWriter& out, std::string_view key, const std::vector<DiffRow>& rows) {
    out.key(key).begin_array();
    for (const DiffRow& row : rows) {
        out.begin_object(true).member("key", row.key);
        write(out, "before", row.before);
        write(out, "after", row.after);
        out.key("difference");
        if (!row.is_number()) {
            out.null();
        } else if (row.is_whole()) {
            out.value(static_cast<std::int64_t>(row.difference()));
        } else {
            out.value(row.difference());
        }
        out.key("percent");
        if (const std::optional<double> percent = row.percent()) {
            out.value(*percent);
        } else {
            out.null();
        }
        out.end_object();
    }
    out.end_array();
}

}  // namespace

std::string json_report(const Diff& diff, const std::string& before_file, const std::string& after_file,
                        std::string_view version) {
    JsonWriter out = begin_result("diff", version);
    out.member("before", before_file).member("after", after_file);
    out.member("same", diff.same());
    write_rows(out, "settings", diff.settings);
    write_rows(out, "results", diff.results);
    out.key("notes").begin_array();
    for (const std::string& note : diff.notes) {
        out.value(note);
    }
    out.end_array().end_object();
    return out.take();
}

}  // namespace fsdplan
