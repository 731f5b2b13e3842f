#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/json.hpp"
#include "fsdplan/report.hpp"
#include "report/pickle_writer.hpp"
#include "simulate/schedules.hpp"

namespace fsdplan {
namespace {

using simulated::Script;
using testing::HasSubstr;
using testing::Not;

fsdplan::Run run_of(const Script& script) {
    fsdplan::Run run{.timeline = script.played()};
    run.waits = exposed_waits(script.schedule, run.timeline);
    run.iterations = iteration_times(script.schedule, run.timeline, run.waits);
    run.memory = device_memory(script.schedule, run.timeline, {.device = 80_GiB}, FreeTiming::by_clock);
    return run;
}

Script small() {
    Script script;
    script.schedule.units[1] = "layers.0 \"a\"";
    const std::int32_t buffer = script.buffer(std::int64_t{1} << 30U, Category::unsharded, Stream::gather);
    script.iteration();
    script.compute(1234567, 1);
    script.allocate(buffer);
    script.gather(2'000'000);
    script.join(Stream::compute, Stream::gather);
    script.compute(10);
    script.free(buffer);
    return script;
}

TEST(TraceReport, TimesAreExactToTheNanosecond) {
    const Script script = small();
    const std::string text = trace_report(script.schedule, run_of(script), {.version = "1"});
    EXPECT_THAT(text, HasSubstr(R"("ts": 0.001, "dur": 1234.567)"));
    // Compute waits from the end of its first kernel to the end of the gather.
    EXPECT_THAT(
        text,
        HasSubstr(R"("name": "waits: gather", "cat": "wait", "tid": 2, "ts": 1234.568, "dur": 765.433)"));
}

TEST(TraceReport, SaysWhatACollectiveIs) {
    const Script script = small();
    const std::string text = trace_report(script.schedule, run_of(script), {.version = "1"});
    // 2^23 bf16 over 8 ranks in 2 ms: 7/8 of 16.8 MB, 7.34 GB/s.
    EXPECT_THAT(text, HasSubstr(R"("name": "all_gather layers.0 \"a\"", "cat": "collective")"));
    EXPECT_THAT(
        text,
        HasSubstr(
            R"("bytes": 16777216, "input_numel": 1048576, "output_numel": 8388608, "group": "shard", "group_size": 8, "busbw_GBps": 7.340)"));
}

TEST(TraceReport, CountsMemoryByCategory) {
    const Script script = small();
    const std::string text = trace_report(script.schedule, run_of(script), {.version = "1"});
    EXPECT_THAT(
        text,
        HasSubstr(R"x("name": "memory (GiB)", "ts": 0.001, "args": {"gathered_parameters": 1.000000})x"));
    EXPECT_THAT(text, HasSubstr(R"({"reserved": 1.000000})"));
    EXPECT_THAT(text, Not(HasSubstr("activations")));
}

TEST(TraceReport, UsesModuleNamesWhereTheyAreGiven) {
    Script script = small();
    script.schedule.ops[0].module = 1;
    const std::vector<std::string> modules{"", "layers.0.mlp"};
    const TraceOptions options{.version = "1", .modules = modules};
    EXPECT_THAT(trace_report(script.schedule, run_of(script), options),
                HasSubstr(R"("name": "layers.0.mlp", "cat": "compute")"));
}

/// Slices of one track are disjoint, sorted, and none is lost: read back from the text.
TEST(TraceReport, SlicesOfATrackNeverOverlap) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(seed);
        const Script script = simulated::random_script(seed);
        const json::Document document(trace_report(script.schedule, run_of(script), {.version = "1"}),
                                      "trace");
        std::map<std::int64_t, std::int64_t> busy_until;
        double before = 0.0;
        std::size_t device_slices = 0;
        for (const json::Value event : document.root().at("traceEvents").elements()) {
            if (event.at("ph").string() == "M") {
                continue;
            }
            const double ts = event.at("ts").number();
            EXPECT_GE(ts, before);
            before = ts;
            if (event.at("ph").string() != "X") {
                continue;
            }
            const auto ns = [](double us) { return std::llround(us * 1000.0); };
            std::int64_t& until = busy_until[event.at("tid").integer(0, 100)];
            EXPECT_GE(ns(ts), until);
            until = ns(ts) + ns(event.at("dur").number());
            const std::string_view category = event.at("cat").string();
            device_slices +=
                category == "compute" || category == "copy" || category == "collective" ? 1U : 0U;
        }
        const auto works = std::ranges::count_if(script.schedule.ops, [](const Op& op) {
            return op.kind == OpKind::compute || op.kind == OpKind::copy || op.kind == OpKind::to_host ||
                   op.kind == OpKind::collective;
        });
        EXPECT_EQ(device_slices, static_cast<std::size_t>(works));
    }
}

std::string pickled(std::int64_t number) {
    return PickleWriter().value(number).take();
}

TEST(PickleWriter, WritesIntegersAsShortAsTheyAre) {
    using namespace std::string_literals;
    EXPECT_EQ(pickled(0), "\x80\x02K\0."s);
    EXPECT_EQ(pickled(255), "\x80\x02K\xff."s);
    EXPECT_EQ(pickled(256), "\x80\x02M\0\x01."s);
    EXPECT_EQ(pickled(65536), "\x80\x02J\0\0\x01\0."s);
    EXPECT_EQ(pickled(-1), "\x80\x02J\xff\xff\xff\xff."s);
    EXPECT_EQ(pickled(std::int64_t{1} << 32U), "\x80\x02\x8a\x08\0\0\0\0\x01\0\0\0."s);
}

TEST(PickleWriter, WritesContainers) {
    using namespace std::string_literals;
    PickleWriter writer;
    writer.begin_dict().key("a").begin_list().value(true).value(std::int64_t{7}).end_list();
    writer.key("b").begin_list().end_list();
    writer.key("c").begin_tuple().value("a").end_tuple().end_dict();
    EXPECT_EQ(writer.take(),
              "\x80\x02}(X\x01\0\0\0aq\0](\x88K\x07"
              "eX\x01\0\0\0bq\x01]X\x01\0\0\0cq\x02(h\0tu."s);
}

TEST(PickleWriter, AppendsAtMostAThousandItemsAtOnce) {
    PickleWriter writer;
    writer.begin_list();
    for (int i = 0; i < 2500; ++i) {
        writer.value(std::int64_t{1});
    }
    const std::string text = writer.end_list().take();
    EXPECT_EQ(std::ranges::count(text, '('), 3);
    EXPECT_EQ(std::ranges::count(text, 'e'), 3);
}

}  // namespace
}  // namespace fsdplan
