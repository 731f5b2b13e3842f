#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/model.hpp"

// Totals of the library's models against those of the models that transformers builds from the same files
// (data/params.json).
namespace fsdplan {
namespace {

std::string read(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

/// What params.json tells of one model.
struct Totals {
    std::int64_t params = 0, params_counting_tied_twice = 0;
    std::int64_t tensors = 0, tensors_counting_tied_twice = 0;
    std::int64_t modules = 0, buffers = 0, buffer_elements = 0;
    std::set<std::string> dtypes;
    std::vector<std::vector<std::string>> tied_groups;
    std::string class_name;
    std::set<std::string> no_split;

    friend bool operator==(const Totals&, const Totals&) = default;
};

std::ostream& operator<<(std::ostream& out, const Totals& t) {
    out << t.class_name << " params " << t.params << " (" << t.params_counting_tied_twice << "), tensors "
        << t.tensors << " (" << t.tensors_counting_tied_twice << "), modules " << t.modules << ", buffers "
        << t.buffers << " of " << t.buffer_elements << ", dtypes";
    for (const std::string& dtype : t.dtypes) {
        out << " " << dtype;
    }
    out << ", tied";
    for (const std::vector<std::string>& group : t.tied_groups) {
        for (const std::string& member : group) {
            out << " " << member;
        }
        out << ";";
    }
    out << " no split";
    for (const std::string& name : t.no_split) {
        out << " " << name;
    }
    return out;
}

Totals recorded_totals(const json::Value& value) {
    Totals out;
    out.params = value.at("params").integer();
    out.params_counting_tied_twice = value.at("params_counting_tied_twice").integer();
    out.tensors = value.at("tensors").integer();
    out.tensors_counting_tied_twice = value.at("tensors_counting_tied_twice").integer();
    out.modules = value.at("modules").integer();
    out.buffers = value.at("buffers").integer();
    out.buffer_elements = value.at("buffer_elements").integer();
    for (const std::string& dtype : value.at("dtypes").strings()) {
        out.dtypes.insert(dtype);
    }
    for (const json::Value group : value.at("tied_groups").elements()) {
        out.tied_groups.push_back(group.strings());
    }
    out.class_name = value.at("class_name").string();
    for (const std::string& name : value.at("no_split_modules").strings()) {
        out.no_split.insert(name);
    }
    return out;
}

Totals totals_of(const ModelGraph& graph) {
    Totals out;
    out.modules = static_cast<std::int64_t>(graph.modules.size());
    std::map<TensorIndex, std::vector<std::string>> names;
    std::vector<TensorIndex> met;
    std::set<ModuleIndex> seen;
    const auto visit = [&](const auto& self, ModuleIndex m, const std::string& path) -> void {
        if (!seen.insert(m).second) {
            return;
        }
        const ModuleNode& node = graph.modules[at(m)];
        for (const TensorSlot& slot : node.parameters) {
            std::vector<std::string>& known = names[slot.tensor];
            if (known.empty()) {
                met.push_back(slot.tensor);
            }
            known.push_back(path + slot.name);
        }
        for (const TensorSlot& slot : node.buffers) {
            ++out.buffers;
            out.buffer_elements += graph.tensors[at(slot.tensor)].numel;
        }
        for (const ChildSlot& slot : node.children) {
            self(self, slot.module, path + slot.name + ".");
        }
    };
    visit(visit, graph.root, "");
    for (const TensorIndex t : met) {
        const Tensor& tensor = graph.tensors[at(t)];
        const auto uses = static_cast<std::int64_t>(names[t].size());
        out.params += tensor.numel;
        out.params_counting_tied_twice += uses * tensor.numel;
        out.tensors += 1;
        out.tensors_counting_tied_twice += uses;
        out.dtypes.emplace(name(tensor.dtype));
        if (uses > 1) {
            out.tied_groups.push_back(names[t]);
        }
    }
    out.class_name = short_name(graph.classes[at(graph.modules[at(graph.root)].class_index)].name);
    out.no_split = {graph.no_split_classes.begin(), graph.no_split_classes.end()};
    return out;
}

class RecordedTotals : public ::testing::Test {
protected:
    RecordedTotals() : document(read(FSDPLAN_TEST_DATA "/model/data/params.json"), "params.json") {}
    json::Value models() const { return document.root().at("models"); }

    json::Document document;
};

TEST_F(RecordedTotals, AreThoseOfTheLibrary) {
    int compared = 0;
    for (const LibraryModel& model : library_models()) {
        const std::optional<json::Value> recorded = models().find(model.folder);
        if (recorded) {
            EXPECT_EQ(totals_of(import_model(model.folder)), recorded_totals(*recorded)) << model.folder;
            ++compared;
        }
    }
    EXPECT_GT(compared, 0);
}

TEST_F(RecordedTotals, HaveAllTheirModelsInTheLibrary) {
    const std::vector<LibraryModel> library = library_models();
    for (const json::Value model : models().members()) {
        EXPECT_TRUE(std::ranges::any_of(library, [&](const LibraryModel& known) {
            return known.folder == model.key();
        })) << model.key();
    }
}

}  // namespace
}  // namespace fsdplan
