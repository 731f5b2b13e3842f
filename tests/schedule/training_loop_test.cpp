#include <gtest/gtest.h>

#include <algorithm>

#include "fsdplan/schedule.hpp"
#include "support/model_in_code.hpp"
#include "support/schedule_bytes.hpp"

// What the user's loop does around the model decides how long things live.
namespace fsdplan {
namespace {

using test::bytes_at;
using test::bytes_over_time;

constexpr std::int64_t logits_bytes = 7'000;
constexpr std::int64_t workspace_bytes = 11'000;

constexpr std::int64_t width = 64;

ModuleTree blocks_and_head() {
    test::ModelInCode model = test::chain(3, width);
    model.child(model.root(), "head", test::linear, {{"weight", {width, width}}});
    return flatten(model.graph());
}

/// Three blocks and a head under the job's runtime; every call multiplies something.
class Loop {
public:
    explicit Loop(std::string_view runtime) {
        job.runtime = runtime;
        job.param_dtype.reset();
        const bool sharded = fsdplan::runtime(runtime).has_units;
        job.strategy = sharded ? Strategy::full_shard : Strategy::no_shard;
        job.mesh = sharded ? Mesh{.shard = 4} : Mesh{.replicate = runtime == "single" ? 1 : 4};
    }

    Schedule lowered() {
        PolicySpec spec;
        spec.kind = PolicySpec::Kind::module_classes;
        spec.classes = {"Block"};
        const WrapOptions options = wrap_options(job);
        const RuntimeInfo& info = runtime(job.runtime);
        const WrapPlan plan =
            info.wraps_by_policy ? wrap_fsdp1(tree, spec, options) : wrap_fsdp2(tree, spec, options);
        const std::vector<CallWork> work(tree.size(), CallWork{.flops = 1, .backward_flops = 2});
        Schedule schedule = lower({.tree = tree,
                                   .plan = plan,
                                   .job = job,
                                   .work = work,
                                   .loss = {.saved_bytes = logits_bytes},
                                   .workspace_bytes = workspace_bytes,
                                   .input_bytes = inputs,
                                   .iterations = 2});
        EXPECT_EQ(first_fault(schedule), "");
        return schedule;
    }

    const ModuleTree tree = blocks_and_head();
    const std::int64_t parameter_bytes = 4 * width * width * 4;
    const std::vector<std::int64_t> inputs{100, 200};
    TrainingJob job;
};

TEST(TrainingLoop, LogitsLiveAsLongAsTheLoopHoldsThem) {
    Loop loop("fsdp2");
    const auto at = [&](Mark mark) { return bytes_at(loop.lowered(), Category::logits, mark); };
    EXPECT_EQ(at(Mark::loss), 0);
    loop.job.output = OutputLife::backward;
    EXPECT_EQ(at(Mark::loss), logits_bytes);
    EXPECT_EQ(at(Mark::backward_end), logits_bytes);
    EXPECT_EQ(at(Mark::optimizer_step), 0);
    loop.job.output = OutputLife::next_forward;
    EXPECT_EQ(at(Mark::zero_grad), logits_bytes);
    const std::vector<std::int64_t> bytes = bytes_over_time(loop.lowered(), Category::logits);
    EXPECT_EQ(std::ranges::max(bytes), 2 * logits_bytes);  // the new ones are there before the old ones go
}

TEST(TrainingLoop, GradientsLiveUntilTheyAreSetToNone) {
    for (const char* runtime : {"fsdp2", "single"}) {
        Loop loop(runtime);
        const std::int64_t local = loop.parameter_bytes / loop.job.mesh.shard;
        EXPECT_EQ(bytes_at(loop.lowered(), Category::gradient_shard, Mark::zero_grad), 0);
        loop.job.zero_grad_first = true;
        const Schedule schedule = loop.lowered();
        EXPECT_EQ(bytes_at(schedule, Category::gradient_shard, Mark::zero_grad), local) << runtime;
        EXPECT_EQ(bytes_at(schedule, Category::gradient_shard, Mark::loss), 0) << runtime;
    }
}

// One for the thread of forward and one for autograd's, each with the first product.
TEST(TrainingLoop, EachThreadTakesAWorkspace) {
    for (const char* runtime : {"fsdp1", "fsdp2", "ddp", "single"}) {
        const Schedule schedule = Loop(runtime).lowered();
        const std::vector<std::int64_t> bytes = bytes_over_time(schedule, Category::workspace);
        EXPECT_EQ(bytes[static_cast<std::size_t>(schedule.iteration_begin[0])], 0) << runtime;
        EXPECT_EQ(bytes[static_cast<std::size_t>(schedule.iteration_begin[1]) - 1], 2 * workspace_bytes)
            << runtime;
        EXPECT_EQ(bytes.back(), 2 * workspace_bytes) << runtime;
    }
}

TEST(TrainingLoop, InputsStayOnTheDevice) {
    for (const char* runtime : {"fsdp1", "single"}) {
        const std::vector<std::int64_t> bytes = bytes_over_time(Loop(runtime).lowered(), Category::input);
        EXPECT_EQ(bytes.back(), 300) << runtime;
    }
}

// transformers' loss is part of the output that the root's hook waits for: the last block is prefetched in
// front of the loss's backward, not behind it.
TEST(TrainingLoop, ALossInTheModelIsInsideTheRoot) {
    const auto gathers_before_first_backward = [](bool in_model) {
        Loop loop("fsdp2");
        loop.job.loss_in_model = in_model;
        const Schedule schedule = loop.lowered();
        std::size_t i = test::last_mark(schedule, Mark::loss, "");
        int gathers = 0;
        for (; schedule.ops[i].kind != OpKind::compute; ++i) {
            gathers += schedule.ops[i].kind == OpKind::collective ? 1 : 0;
        }
        return gathers;
    };
    EXPECT_EQ(gathers_before_first_backward(false), 0);
    EXPECT_EQ(gathers_before_first_backward(true), 1);
}

// Parameters, their gradients and two moments, and nothing to send.
TEST(SingleGpu, HoldsEverythingOnceAndSendsNothing) {
    Loop loop("single");
    const Schedule schedule = loop.lowered();
    EXPECT_TRUE(traffic_of(schedule).empty());
    EXPECT_EQ(bytes_over_time(schedule, Category::shard).back(), loop.parameter_bytes);
    EXPECT_EQ(bytes_at(schedule, Category::gradient_shard, Mark::optimizer_step), loop.parameter_bytes);
    EXPECT_EQ(bytes_over_time(schedule, Category::optimizer).back(), 2 * loop.parameter_bytes);
}

TEST(Ddp, GradientsThatAreViewsOfBucketsTakeNoMemoryOfTheirOwn) {
    Loop loop("ddp");
    EXPECT_EQ(bytes_at(loop.lowered(), Category::gradient_shard, Mark::optimizer_step), loop.parameter_bytes);
    loop.job.gradient_as_bucket_view = true;
    const Schedule schedule = loop.lowered();
    EXPECT_EQ(bytes_at(schedule, Category::gradient_shard, Mark::optimizer_step), 0);
    EXPECT_EQ(bytes_at(schedule, Category::gradient, Mark::optimizer_step), 0);
    EXPECT_EQ(bytes_at(schedule, Category::reduce_input, Mark::optimizer_step), loop.parameter_bytes);
}

// The last unit: its parameters, their concatenation and the shard of it, beside the other units' shards.
TEST(Fsdp1, AUnitIsWholeOnTheDeviceWhileItIsBuilt) {
    Loop loop("fsdp1");
    const auto most_before_training = [&](Category of) {
        const Schedule schedule = loop.lowered();
        const std::vector<std::int64_t> bytes = bytes_over_time(schedule, of);
        return *std::max_element(bytes.begin(),
                                 bytes.begin() + static_cast<std::ptrdiff_t>(schedule.iteration_begin[0]));
    };
    EXPECT_EQ(most_before_training(Category::unsharded), 0);
    loop.job.fsdp1.built_on_device = true;
    EXPECT_EQ(most_before_training(Category::unsharded), 2 * width * width * 4);
    EXPECT_EQ(most_before_training(Category::shard), loop.parameter_bytes / 4);
}

// The gradient goes to host memory as soon as it is reduced.
TEST(Fsdp2, OffloadedGradientsLeaveTheDevice) {
    Loop loop("fsdp2");
    loop.job.offload = true;
    EXPECT_EQ(bytes_at(loop.lowered(), Category::gradient_shard, Mark::backward_end), 0);
}

}  // namespace
}  // namespace fsdplan
