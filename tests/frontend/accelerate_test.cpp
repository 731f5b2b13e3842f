#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdplan/frontend.hpp"

namespace fsdplan {
namespace {

AcceleratePlugin launched(const PythonArguments& section) {
    const auto environment = accelerate_environment(section, "no");
    return std::get<AcceleratePlugin>(accelerate_plugin({}, std::get<Environment>(environment)));
}

TEST(Accelerate, StrategyUnderTheNewKeyDoesNothingInVersion1) {
    const AcceleratePlugin plugin =
        launched({{"fsdp_version", std::int64_t{1}}, {"fsdp_reshard_after_forward", "SHARD_GRAD_OP"}});
    EXPECT_EQ(plugin.sharding_strategy, PythonValue("FULL_SHARD"));
}

TEST(Accelerate, NumbersInYamlPassAsText) {
    for (const PythonValue& threshold : {PythonValue(1e6), PythonValue("1e6")}) {
        const auto environment = accelerate_environment(
            {{"auto_wrap_policy", "SIZE_BASED_WRAP"}, {"min_num_params", threshold}}, "no");
        const auto plugin = accelerate_plugin({}, std::get<Environment>(environment));
        ASSERT_TRUE(std::holds_alternative<FrontendError>(plugin));
        EXPECT_EQ(std::get<FrontendError>(plugin).rule, FrontendRule::no_number);
    }
}

TEST(Accelerate, AnUnknownClassNamesTheNearest) {
    const ModelGraph graph = import_model("llama3-8b");
    const ModuleTree tree = flatten(graph);
    const AcceleratePlugin plugin = launched({{"fsdp_version", std::int64_t{2}},
                                              {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                                              {"transformer_layer_cls_to_wrap", "LlamaDecoderlayer"}});
    const auto model = accelerate_prepare(tree, model_hints(graph, tree), plugin, 8);
    ASSERT_TRUE(std::holds_alternative<FrontendError>(model));
    EXPECT_THAT(std::get<FrontendError>(model).message, testing::HasSubstr("LlamaDecoderLayer"));
}

TEST(Accelerate, ABadExpressionIsAnError) {
    const ModelGraph graph = import_model("llama3-8b");
    const ModuleTree tree = flatten(graph);
    AcceleratePlugin plugin;
    // The last two are what a matcher that recurses or never gives up dies of.
    for (const std::string& expression :
         {std::string("("), std::string(100'000, '('), std::string("(([a-z._0-9]+)+)+[!?]")}) {
        plugin.ignored_modules = expression;
        EXPECT_THROW((void)accelerate_prepare(tree, {}, plugin, 8), Error) << expression.substr(0, 20);
    }
}

TEST(Accelerate, FloatsReadAsPythonPrintsThem) {
    EXPECT_EQ(python_str(1e6), "1000000.0");
    EXPECT_EQ(python_str(1e-5), "1e-05");
    EXPECT_EQ(python_str(1e22), "1e+22");
    EXPECT_EQ(python_str(std::vector<std::string>{"A", "B"}), "['A', 'B']");
}

}  // namespace
}  // namespace fsdplan
