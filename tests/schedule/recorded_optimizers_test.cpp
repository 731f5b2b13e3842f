#include <gtest/gtest.h>

#include "base/file.hpp"
#include "base/json.hpp"
#include "schedule/optimizer_step.hpp"
#include "support/requests.hpp"

// tests/golden/optimizers: what PyTorch's optimizers asked of the allocator.
namespace fsdplan {
namespace {

std::vector<test::Request> described(const Schedule& schedule) {
    test::Requests out;
    for (const Op& op : schedule.ops) {
        const bool on_device = op.target >= 0 && (op.kind == OpKind::allocate || op.kind == OpKind::free) &&
                               !schedule.buffers[static_cast<std::size_t>(op.target)].on_host;
        if (on_device) {
            op.kind == OpKind::allocate ? out.allocate(op.bytes) : out.free(op.bytes);
        }
    }
    return out.all;
}

struct Case {
    TrainingJob job;
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<std::int64_t> local_numel;
    DType dtype{};
    std::int64_t ranks = 1;

    explicit Case(const json::Value& row) {
        job.optimizer = parse_optimizer(row.at("optimizer").string());
        dtype = *dtype_from_name(row.at("dtype").string());
        ranks = row.at("ranks").integer(1, 64);
        for (const json::Value shape : row.at("shapes").elements()) {
            for (shapes.emplace_back(); const json::Value size : shape.elements()) {
                shapes.back().push_back(size.integer(1, 1 << 20));
            }
        }
        for (const json::Value numel : row.at("local_numel").elements()) {
            local_numel.push_back(numel.integer(0, 1 << 30));
        }
    }

    std::vector<test::Request> step(bool is_first) const {
        Schedule schedule;
        Emitter emit(schedule);
        LocalParameters parameters;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            const LocalParameter parameter{
                .numel = local_numel[i], .dtype = dtype, .shape = shapes[i], .ranks = ranks};
            if (is_first) {
                create_states(emit, job, parameter);
            }
            parameters.add(parameter);
        }
        emit_optimizer(emit, job, parameters, Workload{}.multiprocessors);
        return described(schedule);
    }
};

TEST(RecordedOptimizers, AskForWhatPyTorchAsksFor) {
    const json::Document document(read_file(FSDPLAN_TEST_DATA "/golden/optimizers/recordings.json"),
                                  "recordings.json");
    int steps = 0;
    for (const json::Value row : document.root().elements()) {
        const Case recording(row);
        SCOPED_TRACE(name(recording.job.optimizer) + " " + std::string(name(recording.dtype)) + " on " +
                     std::to_string(recording.ranks));
        const ParameterForm form = recording.ranks > 1 ? ParameterForm::rows : ParameterForm::whole;
        const OptimizerInfo& info = optimizer(recording.job.optimizer.kind);
        const std::string refused(
            info.refused == nullptr ? "" : info.refused(form, recording.job.optimizer.implementation));
        if (const auto error = row.find("error")) {
            EXPECT_FALSE(refused.empty());
            EXPECT_TRUE(error->string().starts_with(refused)) << error->string();
            continue;
        }
        EXPECT_EQ(refused, "");
        bool is_first = true;
        for (const json::Value events : row.at("steps").elements()) {
            EXPECT_EQ(recording.step(is_first), test::recorded_requests(events.string()));
            is_first = false;
            ++steps;
        }
    }
    EXPECT_GE(steps, 80);
}

}  // namespace
}  // namespace fsdplan
