#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"
#include "support/tree_listing.hpp"

// The tree built from a config.json against the tree of the real model, name by name.
namespace fsdplan {
namespace {

std::vector<std::filesystem::path> recorded_trees() {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(FSDPLAN_TEST_DATA "/golden/wrap")) {
        if (entry.path().filename().string().find(".tree.json") != std::string::npos) {
            out.push_back(entry.path());
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

TEST(HuggingFaceConfig, BuildsTheTreesThatTransformersBuilds) {
    int compared = 0;
    for (const std::filesystem::path& path : recorded_trees()) {
        const ModelGraph recorded = import_model(path.string());
        if (!recorded.source.starts_with("transformers")) {
            continue;
        }
        SCOPED_TRACE(recorded.name);
        ModelGraph built;
        try {
            built = import_model(recorded.name);
        } catch (const Error& error) {
            ADD_FAILURE() << error.what();
            continue;
        }
        const std::vector<std::string> want = tree_listing(recorded);
        const std::vector<std::string> got = tree_listing(built);
        for (std::size_t i = 0; i < std::max(want.size(), got.size()); ++i) {
            const std::string w = i < want.size() ? want[i] : "(nothing)";
            const std::string g = i < got.size() ? got[i] : "(nothing)";
            if (w != g) {
                ADD_FAILURE() << "line " << i << "\n  recorded " << w << "\n  built    " << g;
                break;
            }
        }
        ++compared;
    }
    EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace fsdplan
