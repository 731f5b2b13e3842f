#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fsdplan/schedule.hpp"
#include "support/model_in_code.hpp"

namespace fsdplan {
namespace {

PolicySpec blocks() {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = {"Block"};
    return spec;
}

TrainingJob job_of(std::string_view runtime, std::int64_t ranks) {
    TrainingJob job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = ranks};
    return job;
}

Schedule lowered(const ModuleTree& tree, const TrainingJob& job, int iterations = 3) {
    const WrapPlan plan = job.runtime == "fsdp1" ? wrap_fsdp1(tree, blocks(), wrap_options(job))
                                                 : wrap_fsdp2(tree, blocks(), wrap_options(job));
    return lower({.tree = tree, .plan = plan, .job = job, .iterations = iterations});
}

/// Every combination of the options that change what happens when.
std::vector<TrainingJob> jobs() {
    std::vector<TrainingJob> out;
    for (const std::string_view runtime : {"fsdp1", "fsdp2"}) {
        for (const bool low : {false, true}) {
            for (const int accumulate : {1, 3}) {
                for (const bool no_sync : {false, true}) {
                    for (const Strategy strategy :
                         {Strategy::full_shard, Strategy::shard_grad_op, Strategy::hybrid_shard}) {
                        TrainingJob job = job_of(runtime, 4);
                        job.param_dtype = low ? std::optional(DType::bfloat16) : std::nullopt;
                        job.reduce_dtype = low ? std::optional(DType::float32) : std::nullopt;
                        job.accumulate = accumulate;
                        job.no_sync = no_sync;
                        job.strategy = strategy;
                        job.use_orig_params = low;
                        if (is_hybrid(strategy)) {
                            job.mesh = {.replicate = 2, .shard = 2};
                        }
                        out.push_back(job);
                    }
                }
            }
        }
    }
    return out;
}

std::int64_t live_after(const Schedule& schedule, std::size_t iterations) {
    const auto end = iterations < schedule.iteration_begin.size()
                         ? static_cast<std::size_t>(schedule.iteration_begin[iterations])
                         : schedule.ops.size();
    std::int64_t live = 0;
    for (std::size_t i = 0; i < end; ++i) {
        const Op& op = schedule.ops[i];
        live += op.kind == OpKind::allocate ? op.bytes : op.kind == OpKind::free ? -op.bytes : 0;
    }
    return live;
}

TEST(Lower, BreaksNoRuleOfSchedules) {
    const ModuleTree tree = flatten(test::chain(5, 12).graph());
    for (const TrainingJob& job : jobs()) {
        EXPECT_EQ(first_fault(lowered(tree, job)), "") << job.runtime << " " << name(job.strategy);
    }
}

// Between steps memory comes back to one level: states are made in the first, the rest is given back.
TEST(Lower, MemoryReturnsToItsLevel) {
    const ModuleTree tree = flatten(test::chain(5, 12).graph());
    for (const TrainingJob& job : jobs()) {
        const Schedule schedule = lowered(tree, job);
        EXPECT_EQ(live_after(schedule, 1), live_after(schedule, 2))
            << job.runtime << " " << name(job.strategy);
        EXPECT_EQ(live_after(schedule, 2), live_after(schedule, 3))
            << job.runtime << " " << name(job.strategy);
    }
}

TEST(Lower, LaterIterationsAreAlike) {
    const ModuleTree tree = flatten(test::chain(4, 12).graph());
    for (const TrainingJob& job : jobs()) {
        const Schedule schedule = lowered(tree, job);
        const std::span<const Op> second = schedule.iteration(1);
        const std::span<const Op> third = schedule.iteration(2);
        ASSERT_EQ(second.size(), third.size());
        for (std::size_t i = 0; i < second.size(); ++i) {
            EXPECT_EQ(second[i].kind, third[i].kind) << i;
            EXPECT_EQ(second[i].bytes, third[i].bytes) << i;
        }
    }
}

// As recorded from PyTorch: to_empty() makes a tied parameter anew in each of its slots.
TEST(Lower, ATiedParameterIsThereTwiceForAMoment) {
    const ModuleTree tree = flatten(import_model("llama3.2-1b"));
    const TrainingJob job = job_of("fsdp2", 8);
    PolicySpec layers;
    layers.kind = PolicySpec::Kind::module_classes;
    layers.classes = {"LlamaDecoderLayer"};
    const WrapPlan plan = wrap_fsdp2(tree, layers, wrap_options(job));
    const Schedule schedule = lower({.tree = tree, .plan = plan, .job = job, .iterations = 1});
    std::int64_t now = 0;
    std::int64_t most = 0;
    for (const Op& op :
         std::span(schedule.ops).first(static_cast<std::size_t>(schedule.iteration_begin[0]))) {
        now += op.kind == OpKind::allocate ? op.bytes : op.kind == OpKind::free ? -op.bytes : 0;
        most = std::max(most, now);
    }
    EXPECT_EQ(most - now, 128'256 * 2'048 / 8 * 2);
}

/// What a pass of the last iteration does to buffers of a category, one line each: "+bytes" or "-bytes".
std::vector<std::string> changes(const Schedule& schedule, Category category, Pass pass) {
    std::vector<std::string> out;
    for (const Op& op : schedule.iteration(schedule.iteration_begin.size() - 1)) {
        const bool moves = op.kind == OpKind::allocate || op.kind == OpKind::free;
        const Buffer* buffer = moves ? &schedule.buffers[static_cast<std::size_t>(op.target)] : nullptr;
        if (moves && op.pass == pass && buffer->category == category && !buffer->on_host) {
            out.push_back((op.kind == OpKind::allocate ? "+" : "-") + std::to_string(op.bytes));
        }
    }
    return out;
}

// Where the allocator finds room hangs on the order, which is that of real steps on a device.
TEST(Lower, TheOptimizerGoesThroughParametersInTheirOrder) {
    test::ModelInCode model("toys.Net");
    model.child(model.root(), "embed", test::linear, {{"weight", {8, 100}}});
    for (const std::string name : {"block0", "block1"}) {
        const ModuleIndex block = model.child(model.root(), name, "toys.Block");
        model.child(block, "fc", test::linear, {{"weight", {8, name == "block0" ? 200 : 300}}});
    }
    model.child(model.root(), "head", test::linear, {{"weight", {8, 400}}});
    const Schedule schedule = lowered(flatten(model.graph()), job_of("fsdp2", 2), 1);
    const auto states = changes(schedule, Category::optimizer, Pass::optimizer);
    EXPECT_THAT(states,
                testing::ElementsAre("+1600", "+1600", "+3200", "+3200", "+4800", "+4800", "+6400", "+6400"));
    EXPECT_THAT(changes(schedule, Category::optimizer_temporary, Pass::optimizer),
                testing::ElementsAre("+1600", "+3200", "+4800", "+6400", "-6400", "-4800", "-3200", "-1600"));
    // The root's gradients are one storage, which its last parameter still holds when the blocks' are gone.
    EXPECT_THAT(changes(schedule, Category::reduce_output, Pass::optimizer),
                testing::ElementsAre("-3200", "-4800", "-8000"));
}

TEST(Lower, OneRankMovesNothing) {
    const ModuleTree tree = flatten(test::chain(3, 8).graph());
    const Schedule schedule = lowered(tree, job_of("fsdp2", 1));
    EXPECT_TRUE(
        std::ranges::none_of(schedule.ops, [](const Op& op) { return op.kind == OpKind::collective; }));
}

// The limiter: the host blocks once two freed units are under way, so from the third gather of a step on.
TEST(Lower, TheLimiterBlocksTheHost) {
    const ModuleTree tree = flatten(test::chain(6, 8).graph());
    TrainingJob job = job_of("fsdp1", 4);
    const auto blocks_in = [&](const TrainingJob& j) {
        const Schedule schedule = lowered(tree, j, 1);
        return std::ranges::count(schedule.ops, OpKind::block, &Op::kind);
    };
    EXPECT_GT(blocks_in(job), 0);
    job.limit_all_gathers = false;
    EXPECT_EQ(blocks_in(job), 0);
}

// The loss's own backward stands in the schedule once a micro-batch, whatever else autograd starts from: a
// recomputed region, or a parameter that no unit manages.
TEST(Lower, TheLossGoesBackwardOnce) {
    const ModuleTree tree = flatten(test::chain(4, 12).graph());
    const std::vector<CallWork> work(tree.size(), CallWork{.saved_bytes = 64, .input_bytes = 16});
    for (TrainingJob job : jobs()) {
        job.activation_checkpointing.modules = {"layers.1", "layers.2"};
        job.activation_checkpointing.reentrant = true;
        WrapOptions options = wrap_options(job);
        options.ignored_parameters = {"layers.3.fc.weight"};
        const WrapPlan plan = job.runtime == "fsdp1" ? wrap_fsdp1(tree, blocks(), options)
                                                     : wrap_fsdp2(tree, blocks(), options);
        constexpr int marker = 7;  // kernels that nothing else launches
        const Schedule schedule = lower({.tree = tree,
                                         .plan = plan,
                                         .job = job,
                                         .work = work,
                                         .loss = {.saved_bytes = 32, .backward_launches = marker},
                                         .iterations = 1});
        EXPECT_EQ(std::ranges::count(schedule.ops, marker, &Op::launches), job.accumulate)
            << job.runtime << " " << name(job.strategy);
        EXPECT_EQ(first_fault(schedule), "") << job.runtime << " " << name(job.strategy);
    }
}

// What a branch saves whose result nobody reads goes at the end of backward, when the graph does.
TEST(Lower, ADroppedBranchLeavesNothing) {
    ModelGraph graph = test::chain(3, 12).graph();
    // Rows of the tree: the root, the list, then each block before its layer. Block 1's result is dropped.
    graph.calls = {.module = {ModuleIndex{0}, ModuleIndex{2}, ModuleIndex{3}, ModuleIndex{4}, ModuleIndex{5},
                              ModuleIndex{6}, ModuleIndex{7}},
                   .from_begin = {0, 0, 0, 1, 1, 2, 2, 3},
                   .from = {-1, 2, 2},
                   .output_from = {6}};
    const ModuleTree tree = flatten(graph);
    ASSERT_EQ(tree.path(ModuleIndex{4}), "layers.1");
    const std::vector<CallWork> work(tree.size(), CallWork{.saved_bytes = 64, .input_bytes = 16});
    for (TrainingJob job : jobs()) {
        for (const bool checkpointed : {false, true}) {
            job.activation_checkpointing.modules.assign(checkpointed ? 1 : 0, "layers.1");
            const WrapPlan plan = job.runtime == "fsdp1" ? wrap_fsdp1(tree, blocks(), wrap_options(job))
                                                         : wrap_fsdp2(tree, blocks(), wrap_options(job));
            const Schedule schedule =
                lower({.tree = tree, .plan = plan, .job = job, .work = work, .iterations = 2});
            std::int64_t activations = 0;
            for (const Op& op : schedule.ops) {
                if (op.kind == OpKind::allocate || op.kind == OpKind::free) {
                    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(op.target)];
                    if (buffer.category == Category::activation) {
                        activations += op.kind == OpKind::allocate ? op.bytes : -op.bytes;
                    }
                }
            }
            EXPECT_EQ(activations, 0) << job.runtime << " " << name(job.strategy);
            EXPECT_EQ(first_fault(schedule), "") << job.runtime << " " << name(job.strategy);
        }
    }
}

TEST(Lower, TextNamesEveryOperation) {
    const ModuleTree tree = flatten(test::chain(2, 8).graph());
    const Schedule schedule = lowered(tree, job_of("fsdp2", 4), 1);
    const std::string text = to_text(schedule);
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(text, '\n')), schedule.ops.size());
    EXPECT_NE(text.find("all_gather bfloat16"), std::string::npos);
}

TEST(FirstFault, SeesWhatIsWrong) {
    Schedule schedule;
    schedule.buffers.push_back({.bytes = 8});
    schedule.ops.push_back({.kind = OpKind::free, .target = 0});
    EXPECT_EQ(first_fault(schedule), "operation 0: buffer 0 is not live");
    schedule.ops[0] = {.kind = OpKind::wait, .target = 0};
    EXPECT_EQ(first_fault(schedule), "operation 0: waits for operation 0, no earlier record");
    schedule.ops[0] = {.kind = OpKind::allocate, .target = 1};
    EXPECT_EQ(first_fault(schedule), "operation 0: no such buffer");
}

}  // namespace
}  // namespace fsdplan
