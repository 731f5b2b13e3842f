#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "fsdplan/frontend.hpp"

namespace fsdplan {

inline const FrontendInfo& front_end(std::string_view name) {
    const auto all = builtin::frontends();
    return **std::ranges::find(all, name, [](const FrontendInfo* info) { return info->name; });
}

/// A sample of a user's file.
inline std::string sample(const std::string& name) {
    std::ifstream file(std::string(FSDPLAN_TEST_DATA "/frontend/data/") + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// A model and what is asked about it.
struct Asked {
    ModelGraph model;
    ModuleTree tree;
    TrainingJob job{};
    int ranks = 8;

    explicit Asked(const std::string& source) : model(import_model(source)), tree(flatten(model)) {}

    FrontendPlan read(std::string_view front, const std::string& text,
                      const std::string& file = "file") const {
        return front_end(front).read(text, file, {.model = model, .tree = tree, .job = job, .ranks = ranks});
    }

    /// The only line of the error with which it is refused; "" when it is not.
    std::string refusal(std::string_view front, const std::string& text) const {
        try {
            (void)read(front, text);
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::input);
            EXPECT_EQ(error.faults().size(), 1U);
            return error.what();
        }
        return "";
    }
};

inline Asked llama() {
    return Asked("llama3-8b");
}
inline Asked torchtitan_llama() {
    return Asked(FSDPLAN_TEST_DATA "/golden/frontends/torchtitan/llama3-debugmodel.tree.json");
}

/// "value (from)" of a setting, or "" when the plan has none of this name.
inline std::string setting(const FrontendPlan& plan, std::string_view name) {
    const auto found = std::ranges::find(plan.settings, name, &FrontendPlan::Setting::name);
    return found == plan.settings.end() ? "" : found->value + " (" + found->from + ")";
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace fsdplan
