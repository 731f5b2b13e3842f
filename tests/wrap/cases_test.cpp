#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/wrap.hpp"

// Questions that people asked in public about boundaries and errors, with their right answers (tests/cases).
namespace fsdplan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

struct Case {
    Case(const std::string& name, const std::string& model_file)
        : folder(FSDPLAN_TEST_DATA "/cases/" + name + "/"),
          document(read_text(folder + "expected.json"), name + "/expected.json"),
          expect(document.root().at("expect")),
          model(import_model(folder + model_file)),
          tree(flatten(model)) {}

    std::string folder;
    json::Document document;
    json::Value expect;
    ModelGraph model;
    ModuleTree tree;
};

std::string shown(const std::string& path) {
    return path.empty() ? "(root)" : path;
}

const Unit* find_unit(const WrapPlan& plan, std::string_view module) {
    const auto unit =
        std::ranges::find_if(plan.units, [&](const Unit& u) { return shown(u.path) == module; });
    return unit == plan.units.end() ? nullptr : &*unit;
}

/// The recorded rows are a set: {module, flat_numel, shard_numel}.
void expect_flat_sizes(const json::Value& rows, const WrapPlan& plan) {
    ASSERT_EQ(plan.units.size(), rows.size());
    for (const json::Value row : rows.elements()) {
        const Unit* unit = find_unit(plan, row.at("module").string());
        ASSERT_NE(unit, nullptr) << row.at("module").string();
        EXPECT_EQ(unit->flat_numel, row.at("flat_numel").integer()) << unit->path;
        EXPECT_EQ(unit->shard_numel, row.at("shard_numel").integer()) << unit->path;
    }
}

PolicySpec policy(const ModuleTree& tree, std::vector<std::string> texts) {
    return parse_policy(texts, tree);
}

std::vector<std::string> faults_of(const ModuleTree& tree, const std::string& text) {
    std::vector<std::string> out;
    try {
        policy(tree, {text});
    } catch (const Error& error) {
        for (const Fault& fault : error.faults()) {
            out.push_back(fault.message);
        }
    }
    return out;
}

TEST(Case02, AThresholdOfZeroWrapsAllButLists) {
    const Case c("02-size-policy-threshold-zero", "tree.json");
    const json::Value want = c.expect.at("plain_torch_min_num_params_0");
    const WrapPlan plan = wrap(c.tree, policy(c.tree, {"size:0"}), {});
    EXPECT_EQ(static_cast<std::int64_t>(plan.units.size()), want.at("fsdp_instances").integer());
    for (const json::Value row : want.at("units").elements()) {
        const Unit* unit = find_unit(plan, row.at("module").string());
        ASSERT_NE(unit, nullptr) << row.at("module").string();
        EXPECT_EQ(unit->numel, row.at("numel").integer()) << unit->path;
        EXPECT_EQ(static_cast<std::int64_t>(unit->parameters.size()), row.at("tensors").integer())
            << unit->path;
    }
}

TEST(Case04, AWrongLetterCaseNamesTheRightClassWithItsCount) {
    const Case c("04-class-name-wrong-case", "config.json");
    const std::vector<std::string> faults = faults_of(c.tree, "transformer:LLaMADecoderLayer");
    ASSERT_EQ(faults.size(), 1U);
    EXPECT_THAT(faults[0], HasSubstr("LlamaDecoderLayer (32 of them)"));
    const WrapPlan mended = wrap(c.tree, policy(c.tree, {"transformer:LlamaDecoderLayer"}), {});
    EXPECT_EQ(static_cast<std::int64_t>(mended.units.size()), c.expect.at("units_if_fixed").integer());
}

TEST(Case05, ALayerOfAnotherFamilyNamesThisOnes) {
    const Case c("05-wrong-family-class", "config.json");
    const json::Value fixed = c.expect.at("if_fixed");
    const std::vector<std::string> faults = faults_of(c.tree, "transformer:BertLayer");
    ASSERT_EQ(faults.size(), 1U);
    EXPECT_THAT(faults[0], HasSubstr("XLMRobertaLayer (12 of them)"));
    EXPECT_EQ(c.tree.numel[0], fixed.at("total").integer());
    const WrapPlan mended = wrap(c.tree, policy(c.tree, {"transformer:XLMRobertaLayer"}), {});
    EXPECT_EQ(static_cast<std::int64_t>(mended.units.size()), fixed.at("units").integer());
    EXPECT_EQ(mended.units[0].numel, fixed.at("root_numel").integer());
    EXPECT_EQ(mended.units[1].numel, fixed.at("layer_numel").integer());
}

TEST(Case06, FrozenAndTrainableParametersInOneBlock) {
    const Case c("06-lora-mixed-requires-grad", "tree.json");
    WrapOptions options{.world_size = 4};
    const WrapPlan refused = wrap(c.tree, policy(c.tree, {"class:Block"}), options);
    ASSERT_NE(refused.construction_error(), nullptr);
    EXPECT_EQ(refused.construction_error()->error_type, "ValueError");
    EXPECT_EQ(refused.construction_error()->unit,
              c.expect.at("use_orig_params_false").at("first_bad_unit").string());

    const WrapPlan two_parts =
        wrap(c.tree, policy(c.tree, {"names:*.lora_?.default", "transformer:Block"}), options);
    EXPECT_EQ(two_parts.construction_error(), nullptr);
    expect_flat_sizes(c.expect.at("leaf_trainable_or_block_policy").at("units_world4"), two_parts);

    const json::Value original = c.expect.at("use_orig_params_true");
    options.use_orig_params = true;
    const WrapPlan accepted = wrap(c.tree, policy(c.tree, {"class:Block"}), options);
    EXPECT_EQ(accepted.construction_error(), nullptr);
    EXPECT_EQ(static_cast<std::int64_t>(accepted.diagnostics.size()), original.at("warnings").integer());
    expect_flat_sizes(original.at("units_world4"), accepted);
}

TEST(Case08, Float32ParametersOfStateSpaceBlocks) {
    const Case c("08-hybrid-ssm-fp32-parameters", "tree.json");
    std::vector<std::string> bad_units;
    std::vector<std::string> odd_tensors;
    const WrapPlan plan = wrap(c.tree, policy(c.tree, {"transformer:Block,SSMBlock"}), {.world_size = 4});
    for (const Diagnostic& d : plan.diagnostics) {
        EXPECT_EQ(d.rule, WrapRule::mixed_dtype);
        EXPECT_EQ(d.severity, Severity::error);
        bad_units.push_back(d.unit);
        odd_tensors.insert(odd_tensors.end(), d.tensors.begin(), d.tensors.end());
    }
    EXPECT_THAT(bad_units, ElementsAreArray(c.expect.at("bad_units").strings()));
    for (const std::string& tensor : c.expect.at("odd_tensors").strings()) {
        EXPECT_THAT(odd_tensors, Contains(tensor));
    }
    const WrapPlan fsdp2 = wrap_fsdp2(c.tree, policy(c.tree, {"class:Block,SSMBlock"}), {});
    EXPECT_EQ(fsdp2.construction_error(), nullptr);
    ASSERT_FALSE(fsdp2.diagnostics.empty());
    EXPECT_EQ(fsdp2.diagnostics[0].severity, Severity::forward_error);
    EXPECT_EQ(fsdp2.diagnostics[0].error_type, c.expect.at("fsdp2").at("type").string());
}

TEST(Case09, ATiedEmbeddingInAGroupOfItsOwn) {
    const auto first_forward = [](const Case& c, std::vector<PolicySpec::Call> calls) -> std::string {
        PolicySpec spec;
        spec.kind = PolicySpec::Kind::calls;
        for (const char* block : {"model.layers.0", "model.layers.1", "model.layers.2"}) {
            spec.calls.push_back({.modules = {block}});
        }
        spec.calls.insert(spec.calls.end(), calls.begin(), calls.end());
        spec.calls.push_back({.modules = {""}});
        const WrapPlan plan = wrap(c.tree, spec, {.world_size = 4});
        EXPECT_EQ(plan.construction_error(), nullptr);
        return plan.diagnostics.empty() ? "runs" : plan.diagnostics[0].error_type;
    };
    const Case tied("09-fsdp2-tied-two-groups", "tied.json");
    const Case untied("09-fsdp2-tied-two-groups", "untied.json");
    const PolicySpec::Call embedding{.modules = {"model.embed"}};
    EXPECT_EQ(first_forward(tied, {}), "runs");
    EXPECT_EQ(first_forward(tied, {embedding}), "ValueError");
    EXPECT_EQ(first_forward(tied, {{.modules = {"model.embed", "lm_head"}, .list = true}}), "runs");
    EXPECT_EQ(first_forward(untied, {embedding}), "runs");
}

TEST(Case14, TheModelsOwnListNamesAClassThatItLacks) {
    const Case c("14-default-class-list-names-absent-class", "config.json");
    EXPECT_THAT(c.model.no_split_classes, ElementsAreArray(c.expect.at("default_list").strings()));
    const std::vector<Fault> faults = missing_classes(c.tree, c.model.no_split_classes, "no_split");
    ASSERT_EQ(faults.size(), c.expect.at("missing").size());
    EXPECT_THAT(faults[0].message,
                HasSubstr(std::string((*c.expect.at("missing").elements().begin()).string())));

    const json::Value fixed = c.expect.at("fixed");
    const WrapPlan plan =
        wrap(c.tree, policy(c.tree, {"transformer:LlamaDecoderLayer,CLIPEncoderLayer"}), {});
    EXPECT_EQ(static_cast<std::int64_t>(plan.units.size()), fixed.at("units").integer());
    EXPECT_EQ(plan.units[0].numel, fixed.at("root_numel").integer());
}

}  // namespace
}  // namespace fsdplan
