#include "verify/published/reading.hpp"

// Statements of papers and posts: nowhere is all said that a prediction needs.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

void add(const json::Value& list, std::vector<PublishedRow>& out) {
    for (const json::Value row : list.elements()) {
        if (row.is_object() && row.find("id")) {
            out.push_back(outside_of(row, "papers and blogs", "its settings are stated in part only"));
        }
    }
}

std::vector<PublishedRow> read(const json::Value& file) {
    std::vector<PublishedRow> out;
    for (const json::Value source : file.members()) {
        for (const char* key : {"facts", "rows"}) {
            if (const auto list = source.given(key)) {
                add(*list, out);
            }
        }
    }
    return out;
}

}  // namespace

extern const PublishedSource papers_and_blogs;
constinit const PublishedSource papers_and_blogs{.repository = "", .key = "vldb_fsdp", .read = read};

}  // namespace fsdplan::builtin::published_source
