#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fsdplan/execute.hpp"

namespace fsdplan::test {

/// A device whose operations take as long as a script says, on a clock that only they move.
class FakeBackend final : public Backend {
public:
    explicit FakeBackend(std::vector<std::int64_t> device_ns) : device_ns_(std::move(device_ns)) {}

    std::int64_t memory_bytes = std::int64_t{1} << 50U;  ///< that segments may take
    std::int64_t failing_op = -1;                        ///< whose issue throws
    std::int64_t drift_ns = 0;                           ///< by which each pass is slower than the last
    std::vector<std::int64_t> others{};                  ///< what the other ranks say, if anything else
    std::set<std::int64_t> segments{};                   ///< taken now

    std::string_view name() const override { return "fake"; }
    std::string library() const override { return "fake 1.0"; }
    std::int64_t rank() const override { return 0; }
    std::int64_t ranks() const override { return 2; }
    std::int64_t nodes() const override { return 1; }
    std::vector<std::int64_t> of_all_ranks(std::int64_t mine) override {
        std::vector<std::int64_t> all{mine};
        all.insert(all.end(), others.begin(), others.end());
        all.resize(2, mine);
        return all;
    }
    void stop_all(int /*exit_status*/) override {}

    Bytes memory() const override { return {memory_bytes}; }
    void prepare(const Schedule& schedule, const Mesh& /*mesh*/) override { schedule_ = &schedule; }
    void start() override {
        for (std::int64_t& ns : device_ns_) {
            ns += drift_ns;
        }
        spans_.assign(schedule_->ops.size(), {});
        stream_end_ = {};
        group_end_.clear();
        ends_ = {};
        now_ns_ = 0;
    }
    bool take_segment(std::int64_t segment, Bytes size) override {
        if (size.count > memory_bytes) {
            return false;
        }
        memory_bytes -= size.count;
        segments.insert(segment);
        return true;
    }
    void give_back_segment(std::int64_t segment) override { segments.erase(segment); }

    void issue(std::size_t op) override {
        if (static_cast<std::int64_t>(op) == failing_op) {
            throw Error(ErrorKind::machine, "fakeLaunch", "the device is gone");
        }
        const Op& what = schedule_->ops[op];
        std::int64_t& stream_end = stream_end_[static_cast<std::size_t>(what.stream)];
        std::int64_t start = std::max(now_ns_, stream_end);
        std::int64_t end = start;
        if (what.kind == OpKind::wait) {
            end = what.target < 0 ? start
                                  : std::max(start, spans_[static_cast<std::size_t>(what.target)].end_ns);
        } else if (what.kind == OpKind::collective) {
            std::int64_t& group_end =
                group_end_[schedule_->collectives[static_cast<std::size_t>(what.target)].group];
            start = std::max(start, group_end);
            end = group_end = start + device_ns_[op];
        } else if (what.kind != OpKind::record) {
            end = start + device_ns_[op];
        }
        stream_end = end;
        spans_[op] = {.start_ns = start, .end_ns = end};
        ends_[static_cast<std::size_t>(what.stream)].push_back(end);
    }
    void wait_for(std::size_t record) override { now_ns_ = std::max(now_ns_, spans_[record].end_ns); }
    std::int64_t done(Stream stream) override {
        const std::vector<std::int64_t>& ends = ends_[static_cast<std::size_t>(stream)];
        return std::ranges::upper_bound(ends, now_ns_) - ends.begin();
    }
    std::int64_t now_ns() override { return now_ns_; }
    void finish() override { now_ns_ = std::max(now_ns_, std::ranges::max(stream_end_)); }
    OpSpan span(std::size_t op) const override { return spans_[op]; }
    std::int64_t sent_bytes(std::size_t /*op*/) const override { return 100; }

private:
    std::vector<std::int64_t> device_ns_;
    const Schedule* schedule_ = nullptr;
    std::vector<OpSpan> spans_;
    std::array<std::int64_t, stream_count> stream_end_{};
    std::map<RankGroup, std::int64_t> group_end_;
    std::array<std::vector<std::int64_t>, stream_count> ends_;  // of each stream's operations
    std::int64_t now_ns_ = 0;
};

}  // namespace fsdplan::test
