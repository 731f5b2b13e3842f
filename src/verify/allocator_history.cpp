#include "verify/allocator_history.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace fsdplan {
namespace {

std::int64_t bytes_at(const pickle::Value& value, std::string_view key) {
    const pickle::Value bytes = value.at(key);
    const std::int64_t n = bytes.integer();
    if (n < 0 || n > largest_total) {
        bytes.fail("a number of bytes up to 2^53");
    }
    return n;
}

std::string hex(std::int64_t address) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (auto rest = static_cast<std::uint64_t>(address); rest != 0; rest >>= 4U) {
        out.insert(out.begin(), digits[rest & 15U]);
    }
    return "0x" + (out.empty() ? "0" : out);
}

class HistoryReplay {
public:
    HistoryReplay(const pickle::Value& snapshot, CachingAllocator& allocator)
        : snapshot_(snapshot), allocator_(allocator) {
        // Freed blocks are known to be complete by the next request; the snapshot does not tell anything
        // finer.
        allocator.reached_everywhere(std::numeric_limits<std::int64_t>::max());
        allocator.log_driver_calls(true);
        const std::vector<pickle::Value> devices = snapshot.at("device_traces").elements();
        if (devices.empty()) {
            throw Unfit{"it holds no history"};
        }
        events_ = devices.front().elements();
        if (events_.empty()) {
            throw Unfit{"it holds no history"};
        }
        number_streams();
        check_start();
    }

    void replay(CaseReport& report) {
        for (std::size_t i = 0; i < events_.size() && report.matches(); ++i) {
            replay_event(events_[i], "event " + std::to_string(i), report);
        }
        if (report.matches() && !recorded_calls_.empty()) {
            empty_cache("the end", report);
        }
        if (report.matches()) {
            report.compare("segments at the end", recorded_layout(), shown_layout());
        }
    }

    std::int64_t live_blocks() const { return static_cast<std::int64_t>(live_.size()); }

private:
    // Streams are addresses; smaller ones get smaller numbers.
    void number_streams() {
        std::set<std::int64_t> streams;
        for (const pickle::Value& event : events_) {
            if (event.find("stream")) {
                streams.insert(event.at("stream").integer());
            }
        }
        if (streams.size() > static_cast<std::size_t>(CachingAllocator::most_streams)) {
            throw Unfit{"it has more than " + std::to_string(CachingAllocator::most_streams) + " streams"};
        }
        int number = 0;
        for (const std::int64_t stream : streams) {
            streams_[stream] = number++;
        }
    }

    // Whatever was there before the history began has left no trace in it but frees, and segments without an
    // allocation.
    void check_start() const {
        std::set<std::int64_t> segments;
        for (const pickle::Value& event : events_) {
            const std::string_view action = event.at("action").string();
            if (action == "segment_map" || action == "segment_unmap") {
                throw Unfit{"expandable segments: their reservations are not in the history"};
            }
            if (action == "segment_alloc") {
                segments.insert(event.at("addr").integer());
            }
        }
        for (const pickle::Value& segment : snapshot_.at("segments").elements()) {
            if (segment.at("device").integer() == 0 && !segments.contains(segment.at("address").integer())) {
                throw Unfit{"its history begins when memory was already allocated"};
            }
        }
    }

    void replay_event(const pickle::Value& event, const std::string& where, CaseReport& report) {
        const pickle::Value name = event.at("action");
        const std::string_view action = name.string();
        const bool part_of_request = action.starts_with("segment_") || action == "alloc" || action == "oom";
        if (!part_of_request && gave_back()) {
            empty_cache(where, report);
        }
        if (action == "segment_alloc") {
            segment_addresses_.push_back(event.at("addr").integer());
            recorded_calls_.push_back({.kind = DriverCall::Kind::malloc,
                                       .segment = std::int64_t(segment_addresses_.size()) - 1,
                                       .bytes = bytes_at(event, "size")});
        } else if (action == "segment_free") {
            // An address may be used again later: the youngest segment there is meant.
            const auto found =
                std::find(segment_addresses_.rbegin(), segment_addresses_.rend(), event.at("addr").integer());
            if (found == segment_addresses_.rend()) {
                event.at("addr").fail("the address of a segment");
            }
            recorded_calls_.push_back({.kind = DriverCall::Kind::free,
                                       .segment = std::int64_t(segment_addresses_.rend() - found) - 1});
        } else if (action == "alloc") {
            allocate(event, where, report);
        } else if (action == "free_requested") {
            const auto found = live_.find(event.at("addr").integer());
            if (found == live_.end()) {
                event.at("addr").fail("the address of an allocated block");
            }
            allocator_.free(found->second);
            live_.erase(found);
        } else if (action == "oom") {
            const Allocation got = request(event, where, report);
            report.compare(where, "out of memory", got.out_of_memory() ? "out of memory" : "a block");
        } else if (action != "free_completed" && action != "snapshot") {
            name.fail("the name of an allocator's event");
        }
    }

    void allocate(const pickle::Value& event, const std::string& where, CaseReport& report) {
        const std::int64_t address = event.at("addr").integer();
        if (live_.contains(address)) {
            event.at("addr").fail("an address that is not in use");
        }
        const Allocation got = request(event, where, report);
        std::string shown = "none";
        if (got.outcome == Allocation::Outcome::placed) {
            live_[address] = got.block;
            const auto segment = static_cast<std::size_t>(got.segment);
            shown = segment < segment_addresses_.size() ? hex(segment_addresses_[segment] + got.offset_bytes)
                                                        : "a new segment";
        }
        report.compare(where + " address", hex(address), shown);
    }

    // Segments that were given back before a request: by the request itself, or by empty_cache() before it.
    // The history looks alike, and so does a retry on a device whose memory is not known.
    Allocation request(const pickle::Value& event, const std::string& where, CaseReport& report) {
        const Bytes size{bytes_at(event, "size")};
        const std::string expected = shown_calls(recorded_calls_);
        std::optional<CachingAllocator> before;
        if (gave_back()) {
            before = allocator_;
        }
        Allocation got = allocator_.allocate(size, stream_of(event));
        if (before && shown_calls(made_calls()) != expected) {
            allocator_ = std::move(*before);
            allocator_.empty_cache();
            got = allocator_.allocate(size, stream_of(event));
        }
        report.compare(where + " driver calls", expected, shown_calls(made_calls()));
        forget_calls();
        return got;
    }

    bool gave_back() const {
        return std::ranges::any_of(
            recorded_calls_, [](const DriverCall& call) { return call.kind == DriverCall::Kind::free; });
    }

    /// Segments were given back, and no request follows: empty_cache().
    void empty_cache(const std::string& where, CaseReport& report) {
        allocator_.empty_cache();
        report.compare(where + " driver calls", shown_calls(recorded_calls_), shown_calls(made_calls()));
        forget_calls();
    }

    int stream_of(const pickle::Value& event) const { return streams_.at(event.at("stream").integer()); }

    std::vector<DriverCall> made_calls() const {
        std::vector<DriverCall> out;
        for (const DriverCall& call : allocator_.driver_calls()) {
            if (call.kind != DriverCall::Kind::refused) {  // leaves no trace in a history
                out.push_back(call);
            }
        }
        return out;
    }

    void forget_calls() {
        recorded_calls_.clear();
        allocator_.clear_driver_calls();
    }

    static std::string shown_calls(std::vector<DriverCall> calls) {
        std::ranges::sort(calls);
        std::string out;
        for (const DriverCall& call : calls) {
            out += call.kind == DriverCall::Kind::malloc ? "malloc " : "free ";
            out += std::to_string(call.segment) + " " + std::to_string(call.bytes) + "; ";
        }
        return out.empty() ? "none" : out;
    }

    std::string recorded_layout() const {
        std::map<std::int64_t, std::string> rows;
        for (const pickle::Value& segment : snapshot_.at("segments").elements()) {
            if (segment.at("device").integer() != 0) {
                continue;
            }
            std::string blocks;
            for (const pickle::Value& block : segment.at("blocks").elements()) {
                blocks += " " + std::to_string(bytes_at(block, "size")) + " " +
                          std::string(block.at("state").string());
            }
            const std::int64_t address = segment.at("address").integer();
            rows[address] = hex(address) + " " + std::to_string(bytes_at(segment, "total_size")) + " " +
                            std::string(segment.at("segment_type").string()) + blocks;
        }
        return joined(rows);
    }

    std::string shown_layout() const {
        std::map<std::int64_t, std::string> rows;
        for (const CachingAllocator::SegmentView& segment : allocator_.layout()) {
            std::string blocks;
            for (const CachingAllocator::BlockView& block : segment.blocks) {
                const bool free = block.state == CachingAllocator::State::free;
                blocks += " " + std::to_string(block.bytes) + " " + (free ? "inactive" : "active_allocated");
            }
            const std::int64_t address = segment_addresses_.at(static_cast<std::size_t>(segment.segment));
            rows[address] = hex(address) + " " + std::to_string(segment.bytes) + " " +
                            (segment.small ? "small" : "large") + blocks;
        }
        return joined(rows);
    }

    static std::string joined(const std::map<std::int64_t, std::string>& rows) {
        std::string out;
        for (const auto& [address, row] : rows) {
            out += row + "; ";
        }
        return out;
    }

    pickle::Value snapshot_;
    CachingAllocator& allocator_;
    std::vector<pickle::Value> events_;
    std::map<std::int64_t, int> streams_;
    std::vector<std::int64_t> segment_addresses_;  // by number
    std::vector<DriverCall> recorded_calls_;       // since the request before
    std::map<std::int64_t, BlockIndex> live_;      // by recorded address
};

}  // namespace

std::int64_t replay_history(const pickle::Value& snapshot, CachingAllocator& allocator, CaseReport& report) {
    HistoryReplay history(snapshot, allocator);
    history.replay(report);
    return history.live_blocks();
}

}  // namespace fsdplan
