#include "fsdplan/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "fsdplan/base.hpp"

namespace fsdplan {
namespace {

using testing::HasSubstr;
using testing::Not;

// One linear layer of 6 elements that is one unit, on one GPU of 100 bytes.
constexpr std::string_view small_result = R"({
"format": "fsdplan.result", "version": 1, "command": "sweep", "fsdplan": "0.1.0",
"model": {"name": "linear", "source": "linear.json", "class": "torch.nn.Linear", "modules": 1,
  "parameters": {"numel": 6, "trainable_numel": 6, "bytes": 24}, "notes": []},
"job": {"runtime": "fsdp1", "strategy": "FULL_SHARD", "world_size": 1, "replicate": 1, "shard": 1, "batch": 1,
  "seq": 0, "accumulate": 1, "storage_dtype": "float32", "param_dtype": "float32", "reduce_dtype": "float32",
  "optimizer": "sgd", "activation_checkpointing": "none", "loss": "mse", "use_orig_params": false},
"cluster": {"name": "one", "gpu": "tiny", "gpus": 1, "gpus_per_node": 1, "memory_bytes": 100, "budget_bytes": 100},
"assumptions": [],
"verdict": {"fits": true, "left_bytes": 76, "decided_by": "parameter_shards", "text": "It fits.", "next": []},
"recommended": 0,
"plans": [{"min_num_params": {"lo": 0, "hi": null}, "label": "the root", "units": 1, "units_with_parameters": 1,
  "largest_unit": "", "largest_unit_numel": 6, "root_numel": 6, "units_by_class": {"Linear": 1},
  "unit_modules": [""], "unit_numel": [6], "unit_of": [0],
  "peak": {"allocated_bytes": 24, "reserved_bytes": 24, "process_bytes": 24, "low_bytes": 24, "high_bytes": 24},
  "memory": [{"term": "parameter_shards", "bytes": 24, "low_bytes": 24, "high_bytes": 24, "exact": true, "note": ""}],
  "step_ns": 5, "step_low_ns": 4, "step_high_ns": 6, "exposed_ns": 0, "sent_bytes": 0,
  "collectives": [], "strategies": [], "fits": true, "left_bytes": 76, "diagnostics": [], "code": {}}],
"modules": [{"name": "", "class": "torch.nn.Linear", "parent": -1, "numel": 6}]
})";

/// small_result with the one occurrence of `from` changed.
std::string changed(std::string_view from, std::string_view to) {
    std::string json(small_result);
    const std::size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(json.find(from, at + 1), std::string::npos) << from;
    return json.replace(at, from.size(), to);
}

std::string fault_of(std::string_view json) {
    try {
        check_result(json, "r.json");
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::input);
        return error.what();
    }
    return "accepted";
}

/// What stands between the tags of the data element.
std::string data_of(const std::string& page) {
    constexpr std::string_view opening = "id=\"report-data\">";
    const std::size_t begin = page.find(opening) + opening.size();
    return page.substr(begin, page.find("</script>", begin) - begin);
}

std::size_t occurrences(std::string_view text, std::string_view word) {
    std::size_t count = 0;
    for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
        ++count;
    }
    return count;
}

TEST(HtmlReport, HoldsTheResultByteForByte) {
    EXPECT_EQ(data_of(html_report(small_result)), small_result);
}

TEST(HtmlReport, WritesAngleBracketsSoThatNoNameEndsTheElement) {
    const std::string page = html_report(R"({"name": "</script><!--<script>"})");
    EXPECT_EQ(data_of(page), R"({"name": "\u003c/script>\u003c!--\u003cscript>"})");
}

TEST(HtmlReport, FillsEachPlaceholderOnce) {
    const std::string page = html_report("{}");
    for (const std::string_view mark : {"/*@css@*/", "/*@data@*/", "/*@js@*/"}) {
        EXPECT_THAT(page, Not(HasSubstr(std::string(mark))));
    }
    EXPECT_THAT(page, HasSubstr("--accent:"));
    EXPECT_THAT(page, HasSubstr("id: \"verdict\""));
}

TEST(HtmlReport, LeavesAPlaceholderInANameAlone) {
    constexpr std::string_view json = R"({"name": "/*@js@*/ /*@data@*/ /*@css@*/"})";
    EXPECT_EQ(data_of(html_report(json)), json);
}

TEST(HtmlReport, PutsTheSectionsInTheOrderOfTheirFiles) {
    const std::string page = html_report("{}");
    std::size_t last = 0;
    for (const std::string_view part :
         {"const byId", "const result", "id: \"verdict\"", "id: \"thresholds\"", "id: \"plans\"",
          "id: \"modules\"", "id: \"trust\"", "dataset.ready"}) {
        const std::size_t at = page.find(part);
        ASSERT_NE(at, std::string::npos) << part;
        EXPECT_GT(at, last) << part;
        last = at;
    }
}

TEST(HtmlReport, ScriptsDoNotEndTheirOwnElement) {
    // The theme, the data and the code.
    EXPECT_EQ(occurrences(html_report("{}"), "</script"), 3U);
}

TEST(HtmlReport, LoadsNothing) {
    const std::string page = html_report("{}");
    EXPECT_THAT(page, HasSubstr("default-src 'none'"));
    EXPECT_THAT(page, Not(HasSubstr("https://")));
    EXPECT_THAT(page, Not(HasSubstr("src=")));
    EXPECT_THAT(page, Not(HasSubstr("innerHTML")));
}

TEST(HtmlReport, TemplateStaysSmall) {
    EXPECT_LE(html_report("{}").size(), 64U << 10U);
}

TEST(CheckResult, AcceptsAResult) {
    EXPECT_EQ(fault_of(small_result), "accepted");
}

TEST(CheckResult, LetsMoreKeysThrough) {
    EXPECT_EQ(fault_of(changed(R"("recommended": 0)", R"("bound": {}, "recommended": 0)")), "accepted");
}

TEST(CheckResult, TakesAnAnswerThatDepends) {
    EXPECT_EQ(fault_of(changed(R"({"fits": true)", R"({"fits": null)")), "accepted");
    EXPECT_EQ(fault_of(changed(R"("recommended": 0)", R"("recommended": null)")), "accepted");
}

TEST(CheckResult, ModulesMayBeMissing) {
    std::string json = changed(R"(, "unit_of": [0])", "");
    json.replace(json.find("\"modules\": [{"), std::string::npos, "\"modules_note\": \"too many\"}");
    EXPECT_EQ(fault_of(json), "accepted");
}

TEST(CheckResult, RefusesWhatIsNoJson) {
    EXPECT_THAT(fault_of("{\"format\": "), HasSubstr("r.json"));
    EXPECT_EQ(fault_of("[]"), "r.json: expected an object, found an array");
}

TEST(CheckResult, RefusesAnotherFormatVersionOrCommand) {
    EXPECT_EQ(fault_of(changed("fsdplan.result", "fsdplan.module-tree")),
              R"(r.json#/format: expected "fsdplan.result", found "fsdplan.module-tree")");
    EXPECT_EQ(fault_of(changed(R"("version": 1)", R"("version": 2)")),
              "r.json#/version: expected version 1, found 2");
    EXPECT_EQ(
        fault_of(changed(R"("command": "sweep")", R"("command": "decode")")),
        R"(r.json#/command: expected the result of a command that has a page, "sweep", found "decode")");
}

TEST(CheckResult, RefusesIndicesOutOfRange) {
    EXPECT_EQ(fault_of(changed(R"("recommended": 0)", R"("recommended": 1)")),
              "r.json#/recommended: expected an integer from 0 to 0, found 1");
    EXPECT_EQ(fault_of(changed(R"("unit_of": [0])", R"("unit_of": [1])")),
              "r.json#/plans/0/unit_of/0: expected an integer from 0 to 0, found 1");
    // A module that is its own parent would have the page go round in circles.
    EXPECT_EQ(fault_of(changed(R"("parent": -1)", R"("parent": 0)")),
              "r.json#/modules/0/parent: expected an integer from -1 to -1, found 0");
}

TEST(CheckResult, RefusesListsThatDoNotMatch) {
    EXPECT_EQ(
        fault_of(changed(R"("unit_numel": [6])", R"("unit_numel": [])")),
        "r.json#/plans/0/unit_numel: expected one number for each of the 1 unit_modules, found an array");
    EXPECT_EQ(fault_of(changed(R"("unit_of": [0])", R"("unit_of": [0, 0])")),
              "r.json#/plans/0/unit_of: expected one index for each of the 1 modules, found an array");
}

TEST(CheckResult, RefusesAnIntervalThatDoesNotHoldItsEstimate) {
    EXPECT_EQ(fault_of(changed(R"("step_low_ns": 4)", R"("step_low_ns": 7)")),
              "r.json#/plans/0/step_low_ns: expected at most step_ns, found 7");
    EXPECT_EQ(fault_of(changed(R"("step_high_ns": 6)", R"("step_high_ns": 4)")),
              "r.json#/plans/0/step_high_ns: expected at least step_ns, found 4");
    EXPECT_EQ(fault_of(changed(R"({"lo": 0, "hi": null})", R"({"lo": 9, "hi": 8})")).substr(0, 38),
              "r.json#/plans/0/min_num_params/hi: exp");
}

TEST(CheckResult, RefusesNumbersThatJavaScriptWouldRound) {
    EXPECT_THAT(fault_of(changed(R"("sent_bytes": 0)", R"("sent_bytes": 9007199254740993)")),
                HasSubstr("r.json#/plans/0/sent_bytes: expected"));
    EXPECT_THAT(fault_of(changed(R"("sent_bytes": 0)", R"("sent_bytes": 1.5)")), HasSubstr("found 1.5"));
}

TEST(CheckResult, NamesTheMissingKey) {
    EXPECT_EQ(fault_of(changed(R"("exposed_ns": 0, )", "")),
              R"(r.json#/plans/0: the key "exposed_ns" is missing)");
}

}  // namespace
}  // namespace fsdplan
