#include "model/library.hpp"

#include <algorithm>
#include <cctype>

#include "base/embedded.hpp"
#include "base/json.hpp"
#include "fsdplan/model.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view config_file = "/config.json";
constexpr std::string_view names_file = "names.json";

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

}  // namespace

// names.json maps a short name to a folder; "org--name" folders are also known as "org/name" and "name".
std::vector<LibraryModel> library_models() {
    std::vector<LibraryModel> models;
    std::string_view names;
    for (const embedded::EmbeddedFile& file : embedded::nets()) {
        if (file.path == names_file) {
            names = file.content;
        }
        if (!file.path.ends_with(config_file)) {
            continue;
        }
        LibraryModel model;
        model.folder = file.path.substr(0, file.path.size() - config_file.size());
        if (const std::size_t dashes = model.folder.find("--"); dashes != std::string::npos) {
            model.aliases.push_back(model.folder.substr(0, dashes) + "/" + model.folder.substr(dashes + 2));
            model.aliases.push_back(model.folder.substr(dashes + 2));
        }
        models.push_back(std::move(model));
    }
    const json::Document document(names, "models/nets/names.json");
    for (const json::Value entry : document.root().members()) {
        const auto model = std::ranges::find(models, entry.string(), &LibraryModel::folder);
        FSDPLAN_ASSERT(model != models.end(), "names.json points to folders that exist");
        model->aliases.emplace_back(entry.key());
    }
    return models;
}

LibraryEntry library_entry(std::string_view name) {
    const std::string wanted = lower(name);
    const std::vector<LibraryModel> models = library_models();
    const auto is_wanted = [&](const std::string& known) { return lower(known) == wanted; };
    // A folder's own name comes before a short form of another's.
    auto model = std::ranges::find_if(models, is_wanted, &LibraryModel::folder);
    if (model == models.end()) {
        model = std::ranges::find_if(
            models, [&](const LibraryModel& m) { return std::ranges::any_of(m.aliases, is_wanted); });
    }
    if (model == models.end()) {
        std::vector<std::string> known;
        for (const LibraryModel& m : models) {
            known.push_back(m.folder);
            known.insert(known.end(), m.aliases.begin(), m.aliases.end());
        }
        throw Error(ErrorKind::input, std::string(name),
                    "no such file, and no model of the library has this name" + did_you_mean(name, known) +
                        " (`fsdplan models` lists them)");
    }
    const auto files = embedded::nets();
    const auto file =
        std::ranges::find(files, model->folder + std::string(config_file), &embedded::EmbeddedFile::path);
    FSDPLAN_ASSERT(file != files.end(), "a model of the library has a configuration");
    return {.folder = file->path.substr(0, model->folder.size()), .config = file->content};
}

}  // namespace fsdplan
