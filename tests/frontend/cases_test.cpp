#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/frontend.hpp"
#include "support/temp_folder.hpp"

// Questions of real users: tests/cases.
namespace fsdplan {
namespace {

struct Model {
    ModelGraph graph;
    ModuleTree tree;
    ModelHints hints;
};

json::Document expectations(const std::string& folder) {
    const std::string file = folder + "/expected.json";
    return {read_text(FSDPLAN_TEST_DATA "/cases/" + file), file};
}

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
    const json::Document document = expectations("02-size-policy-threshold-zero");
    const json::Value expect = document.root().at("expect");
    const json::Value units = expect.at("frontend_accelerate").at("units");
    ASSERT_EQ(plan.units.size(), units.size());
    for (const json::Value unit : units.elements()) {  // just one
        EXPECT_EQ(unit.at("module").string(), "(root)");
        EXPECT_EQ(short_name(model.tree.class_info(plan.units[0].module).name), unit.at("cls").string());
        EXPECT_EQ(plan.units[0].numel, unit.at("numel").integer());
        EXPECT_EQ(static_cast<std::int64_t>(plan.units[0].parameters.size()), unit.at("tensors").integer());
    }
    EXPECT_TRUE(expect.at("frontend_accelerate").at("resolved_policy").is_null());
}

TEST(Cases, AThresholdOfZeroIsWarnedOf) {
    const Model model = read("02-size-policy-threshold-zero/tree.json");
    const test::TempFolder folder;
    const std::string file = (folder.path() / "fsdp.yaml").string();
    write_file(file,
               "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n"
               "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 0\n");
    const auto accelerate = std::ranges::find(builtin::frontends(), "accelerate", &FrontendInfo::name);
    ASSERT_NE(accelerate, builtin::frontends().end());
    const FrontendPlan plan =
        read_settings(**accelerate, file, {.model = model.graph, .tree = model.tree, .job = {}, .ranks = 8});
    const bool warned = std::ranges::any_of(plan.notes, [](const std::string& note) {
        return note.find("of 0 means no wrapping at all") != std::string::npos;
    });
    const json::Document document = expectations("02-size-policy-threshold-zero");
    EXPECT_EQ(warned, document.root().at("expect").at("warning_expected").boolean());
}

TEST(Cases, AModelsOwnListNamesAnAbsentClass) {
    const Model model = read("14-default-class-list-names-absent-class/config.json");
    PythonArguments arguments{{"fsdp_version", std::int64_t{1}},
                              {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}};
    const auto refused = prepared(model, arguments);
    ASSERT_TRUE(std::holds_alternative<FrontendError>(refused));
    const json::Document document = expectations("14-default-class-list-names-absent-class");
    const json::Value expect = document.root().at("expect");
    EXPECT_EQ(std::get<FrontendError>(refused).subject, expect.at("missing").strings().front());
    EXPECT_EQ(std::get<FrontendError>(refused).error_type, expect.at("accelerate_error").string());

    const json::Value fixed = expect.at("fixed");
    arguments["transformer_cls_names_to_wrap"] = fixed.at("wrap_classes").strings();
    const auto answer = prepared(model, arguments);
    const auto& made = std::get<AcceleratedModel>(answer);
    const WrapPlan plan = wrap(model.tree, made.policy, made.options);
    EXPECT_EQ(static_cast<std::int64_t>(plan.units.size()), fixed.at("units").integer());
    EXPECT_EQ(plan.units[0].numel, fixed.at("root_numel").integer());
}

TEST(Cases, MixedPrecisionRaisesWhatIsTrained) {
    EXPECT_EQ(accelerate_stored(DType::bfloat16, true, "bf16"), DType::float32);
    EXPECT_EQ(accelerate_stored(DType::bfloat16, false, "bf16"), DType::bfloat16);
    EXPECT_EQ(accelerate_stored(DType::bfloat16, true, "no"), DType::bfloat16);
}

}  // namespace
}  // namespace fsdplan
