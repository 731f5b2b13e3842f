#include <gtest/gtest.h>

#include "fsdplan/frontend.hpp"

// Questions of real users: tests/cases.
namespace fsdplan {
namespace {

struct Model {
    ModelGraph graph;
    ModuleTree tree;
    ModelHints hints;
};

Model read(const std::string& file) {
    Model out{
        .graph = import_model(std::string(FSDPLAN_TEST_DATA "/cases/") + file), .tree = {}, .hints = {}};
    out.tree = flatten(out.graph);
    out.hints = model_hints(out.graph, out.tree);
    return out;
}

OrRefused<AcceleratedModel> prepared(const Model& model, const PythonArguments& arguments) {
    const auto plugin = accelerate_plugin(arguments, {});
    return accelerate_prepare(model.tree, model.hints, std::get<AcceleratePlugin>(plugin), 8);
}

TEST(Cases, AThresholdOfZeroWrapsNothing) {
    const Model model = read("02-size-policy-threshold-zero/tree.json");
    const auto answer = prepared(model, {{"fsdp_version", std::int64_t{1}},
                                         {"auto_wrap_policy", "SIZE_BASED_WRAP"},
                                         {"min_num_params", std::int64_t{0}}});
    const auto& made = std::get<AcceleratedModel>(answer);
    EXPECT_EQ(made.policy.kind, PolicySpec::Kind::none);
    const WrapPlan plan = wrap(model.tree, made.policy, made.options);
    ASSERT_EQ(plan.units.size(), 1);
    EXPECT_EQ(plan.units[0].numel, 226'752);
    EXPECT_EQ(plan.units[0].parameters.size(), 27);
}

TEST(Cases, AModelsOwnListNamesAnAbsentClass) {
    const Model model = read("14-default-class-list-names-absent-class/config.json");
    PythonArguments arguments{{"fsdp_version", std::int64_t{1}},
                              {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}};
    const auto refused = prepared(model, arguments);
    ASSERT_TRUE(std::holds_alternative<FrontendError>(refused));
    EXPECT_EQ(std::get<FrontendError>(refused).subject, "CLIPTextEmbeddings");
    EXPECT_EQ(std::get<FrontendError>(refused).error_type, "ValueError");

    arguments["transformer_cls_names_to_wrap"] =
        std::vector<std::string>{"LlamaDecoderLayer", "CLIPEncoderLayer"};
    const auto answer = prepared(model, arguments);
    const auto& made = std::get<AcceleratedModel>(answer);
    const WrapPlan plan = wrap(model.tree, made.policy, made.options);
    EXPECT_EQ(plan.units.size(), 57);
    EXPECT_EQ(plan.units[0].numel, 284'850'176);
}

TEST(Cases, MixedPrecisionRaisesWhatIsTrained) {
    EXPECT_EQ(accelerate_stored(DType::bfloat16, true, "bf16"), DType::float32);
    EXPECT_EQ(accelerate_stored(DType::bfloat16, false, "bf16"), DType::bfloat16);
    EXPECT_EQ(accelerate_stored(DType::bfloat16, true, "no"), DType::bfloat16);
}

}  // namespace
}  // namespace fsdplan
