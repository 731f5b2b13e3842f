#include <array>
#include <string>
#include <string_view>

#include "base/embedded.hpp"
#include "fsdplan/base.hpp"
#include "fsdplan/report.hpp"

namespace fsdplan {
namespace {

/// The template's files with this ending, in the order of their names: a section is one more file.
std::string parts(std::string_view ending) {
    std::string out;
    for (const embedded::EmbeddedFile& file : embedded::report_template()) {
        if (file.path.ends_with(ending)) {
            out += file.content;
        }
    }
    return out;
}

// A script element ends at "</script", and "<!--" changes how it is read. A "<" outside of strings is not
// JSON, so the escape may be used everywhere.
std::string without_markup(std::string_view json) {
    std::string out;
    out.reserve(json.size() + json.size() / 64);
    for (const char c : json) {
        if (c == '<') {
            out += "\\u003c";
        } else {
            out += c;
        }
    }
    return out;
}

struct Slot {
    std::string_view mark;
    std::string content;
};

}  // namespace

std::string html_report(std::string_view result_json) {
    const std::string page = parts(".html");
    const std::array<Slot, 3> slots{{
        {"/*@css@*/", parts(".css")},
        {"/*@data@*/", without_markup(result_json)},
        {"/*@js@*/", parts(".js")},
    }};
    // One pass over the template: a mark that a model's name spells stays what it is.
    std::string out;
    std::size_t done = 0;
    for (const Slot& slot : slots) {
        const std::size_t at = page.find(slot.mark, done);
        FSDPLAN_ASSERT(at != std::string::npos, "the template has each mark once, in this order");
        out.append(page, done, at - done);
        out += slot.content;
        done = at + slot.mark.size();
    }
    return out.append(page, done);
}

}  // namespace fsdplan
