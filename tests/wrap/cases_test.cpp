#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
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
        EXPECT_EQ(short_name(c.tree.class_info(unit->module).name), row.at("cls").string()) << unit->path;
    }
}

TEST(Case03, OnlyUnitsAroundBothHalvesKeepATie) {
    const Case c("03-size-policy-tied-embeddings", "tree.json");
    EXPECT_EQ(c.tree.numel[0], c.expect.at("unique_params").integer());
    WrapOptions options{.use_orig_params = true, .world_size = 4};
    const auto construction = [](const WrapPlan& plan) {
        const Diagnostic* error = plan.construction_error();
        return error == nullptr ? std::string("ok") : error->error_type;
    };
    const WrapPlan apart = wrap(c.tree, policy(c.tree, {"size:20000"}), options);
    EXPECT_EQ(construction(apart), c.expect.at("use_orig_params_true").at("construction").string());
    const json::Value raised = c.expect.at("use_orig_params_true").at("forward_error");
    const auto error = std::ranges::find(apart.diagnostics, Severity::forward_error, &Diagnostic::severity);
    ASSERT_NE(error, apart.diagnostics.end());
    EXPECT_EQ(error->error_type, raised.at("type").string());
    // The head multiplies by what it finds: its unit's, or the embedding's, shard.
    const Unit* embedding = find_unit(apart, "model.embed");
    ASSERT_NE(embedding, nullptr);
    EXPECT_TRUE(
        raised.at("message").string().ends_with("vec (" + std::to_string(embedding->shard_numel) + ")"));

    options.use_orig_params = false;
    const json::Value flat = c.expect.at("use_orig_params_false");
    const WrapPlan twice = wrap(c.tree, policy(c.tree, {"size:20000"}), options);
    EXPECT_EQ(construction(twice), flat.at("construction").string());
    const bool runs = std::ranges::find(twice.diagnostics, Severity::forward_error, &Diagnostic::severity) ==
                      twice.diagnostics.end();
    EXPECT_EQ(runs ? "ok" : "raises", flat.at("forward").string());
    const auto keeps_tie = [&](const char* text) {
        const WrapPlan plan = wrap(c.tree, policy(c.tree, {text}), options);
        return std::ranges::find(plan.diagnostics, WrapRule::tie_broken, &Diagnostic::rule) ==
               plan.diagnostics.end();
    };
    EXPECT_EQ(keeps_tie("size:20000"), flat.at("tie_kept").boolean());
    EXPECT_EQ(keeps_tie("class:Block"), c.expect.at("module_wrap_Block").at("tie_kept").boolean());
}

/// What the cases call a refusal.
std::string_view error_of(const std::vector<std::string>& faults) {
    return faults.size() == 1 && faults[0].find("no module") != std::string::npos ? "class not found" : "";
}

TEST(Case04, AWrongLetterCaseNamesTheRightClassWithItsCount) {
    const Case c("04-class-name-wrong-case", "config.json");
    const std::vector<std::string> faults = faults_of(c.tree, "transformer:LLaMADecoderLayer");
    ASSERT_EQ(faults.size(), 1U);
    EXPECT_EQ(error_of(faults), c.expect.at("error").string()) << faults[0];
    EXPECT_THAT(faults[0], HasSubstr(c.expect.at("missing").strings().front()));
    EXPECT_THAT(faults[0],
                HasSubstr(c.expect.at("suggest").strings().front() + " (" +
                          std::to_string(c.expect.at("suggestion_count").integer()) + " of them)"));
    const WrapPlan mended = wrap(c.tree, policy(c.tree, {"transformer:LlamaDecoderLayer"}), {});
    EXPECT_EQ(static_cast<std::int64_t>(mended.units.size()), c.expect.at("units_if_fixed").integer());
}

TEST(Case05, ALayerOfAnotherFamilyNamesThisOnes) {
    const Case c("05-wrong-family-class", "config.json");
    const json::Value fixed = c.expect.at("if_fixed");
    const std::vector<std::string> faults = faults_of(c.tree, "transformer:BertLayer");
    ASSERT_EQ(faults.size(), 1U);
    EXPECT_EQ(error_of(faults), c.expect.at("error").string()) << faults[0];
    EXPECT_THAT(faults[0], HasSubstr(c.expect.at("missing").strings().front()));
    EXPECT_THAT(faults[0], HasSubstr(c.expect.at("suggest").strings().front() + " (" +
                                     std::to_string(fixed.at("layer_count").integer()) + " of them)"));
    EXPECT_EQ(c.tree.numel[0], fixed.at("total").integer());
    const WrapPlan mended = wrap(c.tree, policy(c.tree, {"transformer:XLMRobertaLayer"}), {});
    EXPECT_EQ(static_cast<std::int64_t>(mended.units.size()), fixed.at("units").integer());
    EXPECT_EQ(mended.units[0].numel, fixed.at("root_numel").integer());
    EXPECT_EQ(std::ranges::count(mended.units, fixed.at("layer_numel").integer(), &Unit::numel),
              fixed.at("layer_count").integer());
}

TEST(Case06, FrozenAndTrainableParametersInOneBlock) {
    const Case c("06-lora-mixed-requires-grad", "tree.json");
    WrapOptions options{.world_size = 4};
    const WrapPlan refused = wrap(c.tree, policy(c.tree, {"class:Block"}), options);
    ASSERT_NE(refused.construction_error(), nullptr);
    const json::Value flat = c.expect.at("use_orig_params_false");
    EXPECT_EQ(refused.construction_error()->error_type, flat.at("error").at("type").string());
    EXPECT_EQ(refused.construction_error()->unit, flat.at("first_bad_unit").string());
    EXPECT_FALSE(refused.construction_error()->error_text.empty());
    EXPECT_TRUE(
        flat.at("error").at("message").string().starts_with(refused.construction_error()->error_text));

    const WrapPlan two_parts =
        wrap(c.tree, policy(c.tree, {"names:*.lora_?.default", "transformer:Block"}), options);
    const json::Value leaves_first = c.expect.at("leaf_trainable_or_block_policy");
    EXPECT_EQ(two_parts.construction_error() == nullptr,
              leaves_first.at("ok_with_use_orig_params_false").boolean());
    EXPECT_EQ(static_cast<std::int64_t>(two_parts.units.size()), leaves_first.at("fsdp_instances").integer());
    expect_flat_sizes(leaves_first.at("units_world4"), two_parts);

    const json::Value original = c.expect.at("use_orig_params_true");
    options.use_orig_params = true;
    const WrapPlan accepted = wrap(c.tree, policy(c.tree, {"class:Block"}), options);
    EXPECT_EQ(accepted.construction_error() == nullptr, original.at("ok").boolean());
    EXPECT_EQ(static_cast<std::int64_t>(accepted.diagnostics.size()), original.at("warnings").integer());
    expect_flat_sizes(original.at("units_world4"), accepted);
    for (const Diagnostic& d : accepted.diagnostics) {
        EXPECT_EQ(d.rule, WrapRule::frozen_with_trainable);
        EXPECT_THAT(
            d.message,
            HasSubstr("a gradient of " + std::to_string(original.at("grad_numel_per_block").integer()) +
                      " elements for " + std::to_string(original.at("trainable_numel_per_block").integer()) +
                      " trainable ones"));
    }
}

std::string_view when(const Diagnostic& d) {
    return d.severity == Severity::error           ? "construction"
           : d.severity == Severity::forward_error ? "first forward"
                                                   : "never";
}

TEST(Case08, Float32ParametersOfStateSpaceBlocks) {
    const Case c("08-hybrid-ssm-fp32-parameters", "tree.json");
    for (const bool use_orig_params : {false, true}) {
        SCOPED_TRACE(use_orig_params);
        const json::Value raised =
            c.expect.at(use_orig_params ? "fsdp1_use_orig_params_true" : "fsdp1_use_orig_params_false");
        std::vector<std::string> bad_units;
        std::vector<std::string> odd_tensors;
        const WrapPlan plan = wrap(c.tree, policy(c.tree, {"transformer:Block,SSMBlock"}),
                                   {.use_orig_params = use_orig_params, .world_size = 4});
        for (const Diagnostic& d : plan.diagnostics) {
            EXPECT_EQ(d.rule, WrapRule::mixed_dtype);
            EXPECT_EQ(d.severity, Severity::error);
            EXPECT_EQ(when(d), raised.at("when").string());
            EXPECT_EQ(d.error_type, raised.at("type").string());
            EXPECT_FALSE(d.error_text.empty());
            EXPECT_TRUE(raised.at("message").string().starts_with(d.error_text)) << d.error_text;
            bad_units.push_back(d.unit);
            odd_tensors.insert(odd_tensors.end(), d.tensors.begin(), d.tensors.end());
        }
        EXPECT_THAT(bad_units, ElementsAreArray(c.expect.at("bad_units").strings()));
        for (const std::string& tensor : c.expect.at("odd_tensors").strings()) {
            EXPECT_THAT(odd_tensors, Contains(tensor));
        }
    }
    const WrapPlan fsdp2 = wrap_fsdp2(c.tree, policy(c.tree, {"class:Block,SSMBlock"}), {});
    EXPECT_EQ(fsdp2.construction_error(), nullptr);
    ASSERT_FALSE(fsdp2.diagnostics.empty());
    EXPECT_EQ(when(fsdp2.diagnostics[0]), c.expect.at("fsdp2").at("when").string());
    EXPECT_EQ(fsdp2.diagnostics[0].error_type, c.expect.at("fsdp2").at("type").string());
    EXPECT_THAT(fsdp2.diagnostics[0].error_text,
                HasSubstr(std::string(c.expect.at("fsdp2").at("message_contains").string())));
}

TEST(Case09, ATiedEmbeddingInAGroupOfItsOwn) {
    const auto first_forward = [](const Case& c, std::vector<PolicySpec::Call> calls) {
        PolicySpec spec;
        spec.kind = PolicySpec::Kind::calls;
        for (const char* block : {"model.layers.0", "model.layers.1", "model.layers.2"}) {
            spec.calls.push_back({.modules = {block}});
        }
        spec.calls.insert(spec.calls.end(), calls.begin(), calls.end());
        spec.calls.push_back({.modules = {""}});
        const WrapPlan plan = wrap(c.tree, spec, {.world_size = 4});
        EXPECT_EQ(plan.construction_error(), nullptr);
        return plan.diagnostics.empty() ? Diagnostic{} : plan.diagnostics[0];
    };
    const Case tied("09-fsdp2-tied-two-groups", "tied.json");
    const Case untied("09-fsdp2-tied-two-groups", "untied.json");
    const PolicySpec::Call embedding{.modules = {"model.embed"}};
    const PolicySpec::Call both{.modules = {"model.embed", "lm_head"}, .list = true};
    const std::vector<std::pair<const char*, Diagnostic>> answers{
        {"blocks_then_root", first_forward(tied, {})},
        {"embedding_own_group", first_forward(tied, {embedding})},
        {"embedding_and_head_one_group", first_forward(tied, {both})},
        {"untied_embedding_own_group", first_forward(untied, {embedding})}};
    for (const auto& [grouping, answer] : answers) {
        SCOPED_TRACE(grouping);
        const json::Value raised = tied.expect.at("first_forward_error").at(grouping);
        EXPECT_EQ(raised.is_null(), answer.error_type.empty());
        if (!raised.is_null()) {
            EXPECT_EQ(answer.error_type, raised.at("type").string());
            EXPECT_FALSE(answer.error_text.empty());
            EXPECT_TRUE(raised.at("message").string().starts_with(answer.error_text)) << answer.error_text;
        }
    }
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
    EXPECT_EQ(std::ranges::max(plan.units, {}, &Unit::numel).numel, fixed.at("largest_unit_numel").integer());
    std::map<std::string, std::int64_t> want;
    for (const json::Value count : fixed.at("by_class").members()) {
        want[std::string(count.key())] = count.integer();
    }
    std::map<std::string, std::int64_t> got;
    for (const Unit& unit : plan.units) {
        ++got[std::string(short_name(c.tree.class_info(unit.module).name))];
    }
    EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace fsdplan
