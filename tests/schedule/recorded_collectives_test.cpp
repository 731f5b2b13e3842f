#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/schedule.hpp"
#include "support/schedule_bytes.hpp"

// Sizes and counts of a step's collectives, and the bytes stored, against recordings of the real runtimes.
namespace fsdplan {
namespace {

const std::filesystem::path folder = std::filesystem::path(FSDPLAN_TEST_DATA) / "golden/collectives";

using Key = std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::string, std::int64_t>;
using Calls = std::map<Key, std::int64_t>;

std::optional<DType> dtype_in(const json::Value& settings, std::string_view key) {
    const auto precision = settings.find("mp");
    const auto value = precision ? precision->find(key) : std::nullopt;
    return value ? dtype_from_name(value->string()) : std::nullopt;
}

TrainingJob job_of(const json::Value& settings) {
    TrainingJob job;
    job.torch = "2.13";
    job.runtime = settings.at("engine").string();
    const auto world = settings.at("world").integer();
    if (const auto strategy = settings.find("strategy")) {
        job.strategy = parse_strategy(strategy->string());
    }
    job.mesh = {.replicate = 1, .shard = world};
    if (const auto mesh = settings.find("mesh")) {
        auto size = mesh->elements().begin();
        job.mesh.replicate = (*size).integer();
        ++size;
        job.mesh.shard = (*size).integer();
        job.strategy = is_hybrid(job.strategy) ? job.strategy : Strategy::hybrid_shard;
    }
    job.param_dtype = dtype_in(settings, "param_dtype");
    job.reduce_dtype = dtype_in(settings, "reduce_dtype");
    const auto originals = settings.find("use_orig_params");
    job.use_orig_params = !originals || originals->boolean();
    if (const auto reshard = settings.find("reshard_after_forward")) {
        job.reshard_after_forward = reshard->is_boolean() ? (reshard->boolean() ? 1 : 0) : reshard->integer();
    }
    const auto root = settings.find("root_reshard_after_forward");
    if (root && root->boolean()) {
        job.reshard_after_forward = 1;
    }
    if (const auto accumulation = settings.find("accum")) {
        job.accumulate = accumulation->at("n").integer();
        job.no_sync = accumulation->at("mode").string() == "no_sync";
    }
    return job;
}

WrapPlan units_of(const ModuleTree& tree, const json::Value& recorded, const TrainingJob& job) {
    PolicySpec spec;
    const bool policy = runtime(job.runtime).wraps_by_policy;
    spec.kind = policy ? PolicySpec::Kind::manual : PolicySpec::Kind::calls;
    std::vector<std::string> units = recorded.at("units").strings();
    std::ranges::reverse(units);  // inner ones first
    for (const std::string& unit : units) {
        if (!policy || !unit.empty()) {
            spec.calls.push_back({.modules = {unit}});
        }
    }
    return wrap(tree, spec, wrap_options(job));
}

std::string_view shown(RankGroup group) {
    switch (group) {
        case RankGroup::shard:
            return "shard";
        case RankGroup::replicate:
            return "replicate";
        case RankGroup::world:
            return "world";
        case RankGroup::post_forward:
            return "post_forward";
    }
    return "";
}

class RecordedCollectives : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(RecordedCollectives, AreTheStepsCollectives) {
    const json::Document document(read_text(GetParam()), GetParam().filename());
    const json::Value recorded = document.root();
    const json::Value settings = recorded.at("settings");
    const ModuleTree tree =
        flatten(import_model((folder / "models" / std::string(settings.at("tree").string())).string()));
    const TrainingJob job = job_of(settings);
    const WrapPlan plan = units_of(tree, recorded, job);
    const Schedule schedule = lower({.tree = tree, .plan = plan, .job = job});

    Calls want;
    for (const json::Value call : recorded.at("collectives").elements()) {
        want[{std::string(call.at("op").string()), std::string(call.at("dtype").string()),
              call.at("input_numel").integer(), call.at("output_numel").integer(),
              std::string(call.at("group").string()), call.at("ranks").integer()}] =
            call.at("count").integer();
    }
    Calls got;
    for (const Collective& call : traffic_of(schedule)) {
        got[{std::string(name(call.kind)), std::string(name(call.dtype)), call.input_numel, call.output_numel,
             std::string(shown(call.group)), call.ranks}] += call.count;
    }
    EXPECT_EQ(got, want);
    EXPECT_EQ(test::bytes_at(schedule, Category::shard, Mark::optimizer_step),
              recorded.at("bytes").at("param").integer());
    const std::int64_t gradients = recorded.at("bytes").at("sgrad").integer();
    if (gradients > 0) {  // absent where the recording had dropped them, or tagged them otherwise
        EXPECT_EQ(test::bytes_at(schedule, Category::gradient_shard, Mark::optimizer_step), gradients);
    }
}

std::vector<std::filesystem::path> recordings() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".json") {
            files.push_back(entry.path());
        }
    }
    std::ranges::sort(files);
    return files;
}

INSTANTIATE_TEST_SUITE_P(Golden, RecordedCollectives, testing::ValuesIn(recordings()),
                         [](const auto& case_of) {
                             std::string name = case_of.param.stem().string();
                             std::ranges::replace_if(
                                 name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
                             return name;
                         });

}  // namespace
}  // namespace fsdplan
