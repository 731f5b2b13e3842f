#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/schedule.hpp"
#include "support/model_in_code.hpp"
#include "support/schedule_bytes.hpp"

// Schedules of DDP and ZeRO send what the recordings of the same model show.
namespace fsdplan {
namespace {

const std::filesystem::path folder = std::filesystem::path(FSDPLAN_TEST_DATA) / "golden/runtime_other";

/// The recorders' MLP: Linear layers, one after the other.
ModuleTree mlp(const std::vector<std::int64_t>& sizes) {
    test::ModelInCode model("toy.MLP");
    const ModuleIndex layers = model.child(model.root(), "layers", "torch.nn.modules.container.ModuleList");
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
        model.child(layers, std::to_string(i), "torch.nn.modules.linear.Linear",
                    {{"weight", {sizes[i + 1], sizes[i]}}, {"bias", {sizes[i + 1]}}});
    }
    return flatten(model.graph());
}

std::string line(std::string_view kind, std::string_view dtype, std::int64_t numel) {
    return std::string(kind) + " " + std::string(dtype) + " " + std::to_string(numel);
}

std::string short_dtype(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return "f32";
        case DType::bfloat16:
            return "bf16";
        case DType::float64:
            return "f64";
        case DType::int64:
            return "i64";
        case DType::int32:
            return "i32";
        default:
            return "u8";
    }
}

std::vector<std::string> sent(const Schedule& schedule, std::size_t iteration) {
    std::vector<std::string> lines;
    for (const Op& op : schedule.iteration(iteration)) {
        if (op.kind == OpKind::collective) {
            const CollectiveCall& call = schedule.collectives[static_cast<std::size_t>(op.target)];
            lines.push_back(line(name(call.kind), short_dtype(call.dtype), call.input_numel));
        }
    }
    return lines;
}

std::vector<std::string> recorded(const json::Value& file, std::size_t iteration) {
    std::vector<json::Value> rows;
    for (const json::Value row : file.at("iterations").elements()) {
        const auto same = row.find("same_as");
        rows.push_back(same ? rows[static_cast<std::size_t>(same->integer())] : row);
    }
    std::vector<std::string> lines;
    for (const json::Value event : rows.at(iteration).at("events").elements()) {
        std::string kind(event.at("e").string());
        kind = kind == "all_gather_into_tensor"  ? "all_gather"
               : kind == "reduce_scatter_tensor" ? "reduce_scatter"
                                                 : kind;
        if (const auto dtype = event.find("dt")) {
            const auto numel = event.find("n");
            lines.push_back(line(kind, dtype->string(), numel ? numel->integer() : event.at("in").integer()));
        }
    }
    return lines;
}

void expect_as_recorded(const std::string& recording, const ModuleTree& tree, const TrainingJob& job) {
    SCOPED_TRACE(recording);
    const std::filesystem::path path = folder / recording;
    const json::Document document(read_text(path), path.string());
    const WrapPlan plan;
    const Schedule schedule =
        runtime(job.runtime).lower({.tree = tree, .plan = plan, .job = job, .iterations = 3});
    EXPECT_EQ(first_fault(schedule), "");
    for (std::size_t i = 0; i < 3; ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(sent(schedule, i), recorded(document.root(), i));
    }
}

TEST(LowerDdp, SendsWhatIsRecorded) {
    TrainingJob job{.runtime = "ddp", .mesh = {.replicate = 8}};
    expect_as_recorded("ddp_mlp.json", mlp({512, 700, 700, 700, 300}), job);
    job.accumulate = 3;
    job.no_sync = true;
    expect_as_recorded("ddp_mlp_accum.json", mlp({512, 700, 700, 700, 300}), job);
}

TEST(LowerZero, SendsWhatIsRecorded) {
    const ModuleTree tree = mlp({20, 37, 37, 37, 11});
    TrainingJob job{.mesh = {.replicate = 2}};
    for (const char* stage : {"zero1", "zero2", "zero3"}) {
        job.runtime = stage;
        job.mesh.replicate = 2;
        expect_as_recorded(std::string(stage) + "_mlp.json", tree, job);
    }
    job.runtime = "zero2";
    job.mesh.replicate = 8;
    expect_as_recorded("zero2_mlp_w8.json", tree, job);
}

TEST(LowerZero, SettingsChangeWhatIsSentAsRecorded) {
    const ModuleTree tree = mlp({20, 37, 37, 37, 11});
    TrainingJob job{.runtime = "zero2", .mesh = {.replicate = 2}};
    job.zero.reduce_bucket_size = 3000;
    expect_as_recorded("zero2_mlp_bucket.json", tree, job);
    job.runtime = "zero1";
    expect_as_recorded("zero1_mlp_bucket.json", tree, job);
    job.runtime = "zero3";
    job.zero = {.param_persistence_threshold = 0};
    expect_as_recorded("zero3_mlp_p0.json", tree, job);
    job.zero = {.prefetch_bucket_size = 0, .max_reuse_distance = 0, .param_persistence_threshold = 0};
    expect_as_recorded("zero3_mlp_nopf.json", tree, job);
}

TEST(LowerZero, OnlyContiguousGradientsHaveABuffer) {
    const ModuleTree tree = mlp({20, 37, 37, 37, 11});
    const WrapPlan plan;
    for (const char* stage : {"zero1", "zero2", "zero3"}) {
        TrainingJob job{.runtime = stage, .mesh = {.replicate = 2}};
        job.zero.reduce_bucket_size = 10'000;
        const auto buffer_bytes = [&] {  // of bfloat16; stage 3 has it all along
            const Schedule schedule = lower({.tree = tree, .plan = plan, .job = job, .iterations = 2});
            EXPECT_EQ(first_fault(schedule), "") << stage;
            return test::unit_bytes(schedule, Category::reduce_input, "");
        };
        EXPECT_EQ(buffer_bytes(), 2 * 10'000) << stage;
        job.zero.contiguous_gradients = false;
        EXPECT_EQ(buffer_bytes(), 0) << stage;
    }
}

TEST(LowerZero, CountsAStepsCollectives) {
    const ModuleTree tree = mlp({20, 37, 37, 37, 11});  // 4007 elements
    const TrainingJob job{.runtime = "zero2", .mesh = {.replicate = 2}};
    const WrapPlan plan;
    const Schedule schedule = lower({.tree = tree, .plan = plan, .job = job, .iterations = 3});
    // Of 2004 elements a rank keeps a float32 master and AdamW's two moments.
    EXPECT_EQ(test::bytes_at(schedule, Category::optimizer, Mark::optimizer_step), 3 * 4 * 2004);
    EXPECT_EQ(test::bytes_at(schedule, Category::shard, Mark::optimizer_step), 2 * 4008);
    EXPECT_EQ(traffic_of(schedule).size(), 4U);  // gradients, overflow, norm, parameters
}

}  // namespace
}  // namespace fsdplan
