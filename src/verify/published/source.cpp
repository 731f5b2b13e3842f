#include "verify/published/source.hpp"

namespace fsdplan::published {
namespace {

/// Whether the file names this repository in one of its "source…" members.
bool is_from(const json::Value& file, std::string_view repository) {
    for (const json::Value member : file.members()) {
        if (!member.key().starts_with("source") || !member.is_object()) {
            continue;
        }
        if (const auto found = member.find("repo");
            found && found->is_string() && found->string() == repository) {
            return true;
        }
    }
    return false;
}

}  // namespace

const PublishedSource* source_of(const json::Value& file) {
    for (const PublishedSource* source : builtin::published_sources()) {
        if (file.find(source->key) && (source->repository.empty() || is_from(file, source->repository))) {
            return source;
        }
    }
    return nullptr;
}

}  // namespace fsdplan::published
