#include <fstream>
#include <iostream>
#include <string>

#include "base/json.hpp"
#include "support/tree_listing.hpp"

// list_tree OUT MODEL...: writes one JSON object a line for each model, with its listing and its
// `_no_split_modules`, or with the error that refused it. The live comparison with transformers reads it.
namespace {

std::string json_list(const std::vector<std::string>& texts) {
    std::string out;
    for (const std::string& text : texts) {
        out += (out.empty() ? "" : ",") + fsdplan::json::quote(text);
    }
    return "[" + out + "]";
}

std::string tree_or_error(const std::string& model) {
    try {
        const fsdplan::ModelGraph graph = fsdplan::import_model(model);
        return "\"listing\":" + json_list(fsdplan::tree_listing(graph)) +
               ",\"no_split\":" + json_list(graph.no_split_classes);
    } catch (const fsdplan::Error& error) {
        return "\"error\":" + fsdplan::json::quote(error.what());
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::cerr << "list_tree OUT MODEL...\n";
        return 2;
    }
    std::ofstream out(argv[1]);
    for (int i = 2; i < argc; ++i) {
        const std::string model = argv[i];
        out << "{\"model\":" << fsdplan::json::quote(model) << "," << tree_or_error(model) << "}\n";
    }
    return out.good() ? 0 : 1;
}
