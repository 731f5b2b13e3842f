#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "base/file.hpp"
#include "base/file_name.hpp"
#include "base/json.hpp"
#include "model/importer.hpp"
#include "model/stored_model.hpp"

// model.safetensors.index.json: which file holds which tensor. Only the headers of those files are read.
namespace fsdplan {
namespace {

constexpr std::size_t unplaced = static_cast<std::size_t>(-1);

/// The index as a table: which of the files should hold a tensor.
struct Placement {
    std::vector<std::string> files;  ///< in the order in which the index first names them
    std::vector<std::int64_t> tensors_in_file;
    std::unordered_map<std::string_view, std::size_t>
        file_of;  ///< by tensor name; `unplaced` once it was found
};

std::string_view plain_file_name(json::Value value) {
    const std::string_view file = value.string();
    if (!is_plain_file_name(file)) {
        value.fail("the plain name of a file in the same folder");
    }
    return file;
}

Placement placement_of(json::Value weight_map) {
    Placement placement;
    placement.file_of.reserve(weight_map.size());
    std::map<std::string_view, std::size_t> known;
    std::string_view last_name;
    std::size_t last = unplaced;
    for (const json::Value entry : weight_map.members()) {
        if (last == unplaced || entry.string() != last_name) {  // neighbours mostly share a file
            last_name = plain_file_name(entry);
            last = known.emplace(last_name, placement.files.size()).first->second;
            if (last == placement.files.size()) {
                placement.files.emplace_back(last_name);
                placement.tensors_in_file.push_back(0);
            }
        }
        ++placement.tensors_in_file[last];
        placement.file_of.emplace(entry.key(), last);
    }
    return placement;
}

class Reader {
public:
    Reader(const ImportSource& source, json::Value root)
        : folder_(source.path.parent_path()), shown_(source.shown), root_(root) {}

    ModelGraph read(const ImportOptions& options) {
        const json::Value weight_map = root_.at("weight_map");
        placement_ = placement_of(weight_map);
        tensors_.reserve(weight_map.size());
        for (std::size_t file = 0; file < placement_.files.size(); ++file) {
            read_shard(file);
        }
        report_missing(weight_map);
        if (!faults_.empty()) {
            throw Error(ErrorKind::input, std::move(faults_));
        }
        ModelGraph graph = stored_model(std::move(tensors_), folder_, shown_, options);
        note_missing_data(weight_map.size(), declared_, present_, graph);
        if (weight_map.size() == 0) {
            graph.notes.emplace_back("the index names no tensors");
        }
        note_total_size(graph);
        return graph;
    }

private:
    void fault(std::string where, std::string message) {
        if (faults_.size() < Error::most_faults) {
            faults_.push_back({std::move(where), std::move(message)});
        }
    }

    void read_shard(std::size_t file) {
        const std::filesystem::path path = folder_ / placement_.files[file];
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(path, ignored)) {
            fault(shown_, "there is no file " + json::quote(placement_.files[file]) +
                              " beside it, which should hold " +
                              std::to_string(placement_.tensors_in_file[file]) + " of " +
                              std::to_string(placement_.file_of.size()) + " tensors");
            absent_files_.insert(placement_.files[file]);
            return;
        }
        SafetensorsHeader header = read_safetensors_header(path, path.string());
        for (StoredTensor& stored : header.tensors) {
            const auto placed = placement_.file_of.find(stored.name);
            if (placed == placement_.file_of.end() || placed->second != file) {
                fault(path.string(), "holds the tensor " + json::quote(stored.name) +
                                         ", which the index does not place in this file");
                continue;
            }
            placed->second = unplaced;
            tensors_.push_back(std::move(stored));
        }
        declared_ += header.declared;
        present_ += header.present;
    }

    // In the order of the index, so that the message does not depend on hashing.
    void report_missing(json::Value weight_map) {
        if (tensors_.size() == weight_map.size()) {
            return;
        }
        for (const json::Value entry : weight_map.members()) {
            if (placement_.file_of.at(entry.key()) != unplaced && !absent_files_.contains(entry.string())) {
                fault(entry.where(),
                      "the file " + json::quote(entry.string()) + " does not hold this tensor");
            }
        }
    }

    // Advisory: some writers counted tensors that share storage twice, some wrote a real number.
    void note_total_size(ModelGraph& graph) const {
        const auto metadata = root_.find("metadata");
        const auto total = metadata && metadata->is_object() ? metadata->find("total_size") : std::nullopt;
        if (total && total->number() != static_cast<double>(declared_.count)) {
            graph.notes.push_back("the index says total_size " + total->shown() + ", but its tensors have " +
                                  std::to_string(declared_.count) + " bytes");
        }
    }

    std::filesystem::path folder_;
    std::string shown_;
    json::Value root_;
    Placement placement_;
    std::set<std::string, std::less<>> absent_files_;
    std::vector<StoredTensor> tensors_;
    std::vector<Fault> faults_;
    Bytes declared_;
    Bytes present_;
};

bool recognises(const ImportSource& source) {
    return source.path.filename().string().ends_with(".safetensors.index.json") ||
           source.head.find("\"weight_map\"") != std::string::npos;
}

}  // namespace

namespace builtin::importer {

extern const ImporterInfo safetensors_index;
constinit const ImporterInfo safetensors_index{
    .name = "model.safetensors.index.json",
    .help = "reads the headers of the safetensors files that an index names",
    .recognises = recognises,
    .read =
        [](const ImportSource& source, const ImportOptions& options) {
            const json::Document document(read_text(source.path), source.shown);
            return Reader(source, document.root()).read(options);
        },
};

}  // namespace builtin::importer
}  // namespace fsdplan
