#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fsdplan/simulate.hpp"

// Schedules written by hand, with the time of each operation beside it.
namespace fsdplan::simulated {

/// Writes a schedule and its times down together; nothing costs anything unless it is said.
class Script {
public:
    Script() {
        schedule.runtime = "by hand";
        schedule.units = {"", "layers.0", "layers.1"};
        schedule.stream_names = {"compute", "pre_gather", "gather", "reduce", "all_reduce", "transfer"};
    }

    std::int32_t add(const Op& op, std::int64_t device_ns = 0, std::int64_t host_ns = 0) {
        schedule.ops.push_back(op);
        times.device_ns.push_back(device_ns);
        times.host_ns.push_back(host_ns);
        return static_cast<std::int32_t>(schedule.ops.size()) - 1;
    }
    std::int32_t compute(std::int64_t ns, std::int64_t host_ns = 0, Stream stream = Stream::compute) {
        return add({.kind = OpKind::compute, .stream = stream, .launches = 1}, ns, host_ns);
    }
    std::int32_t collective(CollectiveKind kind, Stream stream, std::int64_t ns,
                            RankGroup group = RankGroup::shard) {
        const CollectiveCall call{.kind = kind,
                                  .group = group,
                                  .dtype = DType::bfloat16,
                                  .ranks = 8,
                                  .input_numel = 1 << 20,
                                  .output_numel = 1 << 23};
        std::size_t row = 0;
        while (row < schedule.collectives.size() && !(schedule.collectives[row] == call)) {
            ++row;
        }
        if (row == schedule.collectives.size()) {
            schedule.collectives.push_back(call);
        }
        return add({.kind = OpKind::collective,
                    .stream = stream,
                    .unit = 1,
                    .target = static_cast<std::int32_t>(row)},
                   ns);
    }
    std::int32_t gather(std::int64_t ns) {
        return collective(CollectiveKind::all_gather, Stream::gather, ns);
    }
    std::int32_t reduce(std::int64_t ns) {
        return collective(CollectiveKind::reduce_scatter, Stream::reduce, ns);
    }
    std::int32_t record(Stream stream) { return add({.kind = OpKind::record, .stream = stream}); }
    std::int32_t wait(Stream stream, std::int32_t event, std::int64_t latency_ns = 0) {
        return add({.kind = OpKind::wait, .stream = stream, .target = event}, latency_ns);
    }
    /// `stream` waits for all that `other` was given.
    std::int32_t join(Stream stream, Stream other) { return wait(stream, record(other)); }
    std::int32_t block(std::int32_t event) { return add({.kind = OpKind::block, .target = event}); }
    std::int32_t host(std::int64_t ns) { return add({.kind = OpKind::host}, 0, ns); }

    std::int32_t buffer(std::int64_t bytes, Category category, Stream stream = Stream::compute) {
        schedule.buffers.push_back({.bytes = bytes, .category = category, .stream = stream, .unit = 1});
        return static_cast<std::int32_t>(schedule.buffers.size()) - 1;
    }
    std::int32_t allocate(std::int32_t buffer) { return memory(OpKind::allocate, buffer); }
    std::int32_t free(std::int32_t buffer) { return memory(OpKind::free, buffer); }
    std::int32_t use(std::int32_t buffer, Stream stream) {
        return add({.kind = OpKind::use, .stream = stream, .target = buffer});
    }
    std::int32_t relabel(std::int32_t buffer, Category category) {
        return add(
            {.kind = OpKind::relabel, .detail = static_cast<std::uint8_t>(category), .target = buffer});
    }
    void iteration() { schedule.iteration_begin.push_back(static_cast<std::int64_t>(schedule.ops.size())); }

    Timeline played(double speed = 1.0) const {
        Timeline timeline;
        play(schedule, times, speed, timeline);
        return timeline;
    }

    Schedule schedule;
    OpTimes times;

private:
    std::int32_t memory(OpKind kind, std::int32_t buffer) {
        const Stream stream = schedule.buffers[static_cast<std::size_t>(buffer)].stream;
        return add({.kind = kind, .stream = stream, .unit = 1, .target = buffer});
    }
};

/// Anything that the rules of a schedule allow: all kinds, streams and groups; many durations are 0 or alike.
inline Script random_script(std::uint64_t seed, int count = 400) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::int64_t n) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    const auto duration = [&] {
        return pick(4) == 0 ? 0 : pick(3) == 0 ? 100 * (1 + pick(3)) : 1 + pick(1000);
    };
    Script script;
    std::vector<std::int32_t> records;
    std::vector<std::pair<std::int32_t, bool>> buffers;
    for (int i = 0; i < 6; ++i) {
        buffers.emplace_back(
            script.buffer(512 * (1 + pick(20'000)), static_cast<Category>(pick(category_count)),
                          static_cast<Stream>(pick(stream_count))),
            false);
    }
    for (int i = 0; i < count; ++i) {
        const auto stream = static_cast<Stream>(pick(stream_count));
        const std::int64_t host_ns = pick(3) == 0 ? 0 : pick(200);
        switch (pick(10)) {
            case 0:
            case 1:
                script.compute(duration(), host_ns, stream);
                break;
            case 2: {
                const auto kind = pick(2) == 0 ? OpKind::copy : OpKind::to_host;
                script.add({.kind = kind, .stream = stream, .bytes = 1}, duration(), host_ns);
                break;
            }
            case 3:
            case 4:
                script.collective(static_cast<CollectiveKind>(pick(5)), stream, duration(),
                                  static_cast<RankGroup>(pick(4)));
                break;
            case 5:
                records.push_back(script.record(stream));
                break;
            case 6:
            case 7: {
                const bool any = records.empty() || pick(10) == 0;
                script.wait(stream, any ? -1 : records[static_cast<std::size_t>(pick(std::ssize(records)))],
                            any ? 0 : pick(2) * pick(50));
                break;
            }
            case 8: {
                auto& [buffer, live] = buffers[static_cast<std::size_t>(pick(std::ssize(buffers)))];
                if (live && pick(2) == 0) {
                    script.use(buffer, stream);
                } else {
                    live ? script.free(buffer) : script.allocate(buffer);
                    live = !live;
                }
                script.times.host_ns.back() = host_ns;
                break;
            }
            default:
                if (!records.empty() && pick(3) == 0) {
                    script.block(records[static_cast<std::size_t>(pick(std::ssize(records)))]);
                } else {
                    script.host(host_ns);
                }
                break;
        }
        if (pick(100) == 0) {
            script.iteration();
        }
    }
    return script;
}

}  // namespace fsdplan::simulated
