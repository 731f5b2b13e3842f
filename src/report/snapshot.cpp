#include <string>

#include "fsdplan/report.hpp"
#include "report/operation_names.hpp"
#include "report/pickle_writer.hpp"

namespace fsdplan {
namespace {

std::string_view action(AllocatorEvent::Kind kind) {
    switch (kind) {
        case AllocatorEvent::Kind::segment_alloc:
            return "segment_alloc";
        case AllocatorEvent::Kind::segment_free:
            return "segment_free";
        case AllocatorEvent::Kind::segment_map:
            return "segment_map";
        case AllocatorEvent::Kind::segment_unmap:
            return "segment_unmap";
        case AllocatorEvent::Kind::alloc:
            return "alloc";
        case AllocatorEvent::Kind::free_requested:
            return "free_requested";
        case AllocatorEvent::Kind::free_completed:
            return "free_completed";
        case AllocatorEvent::Kind::out_of_memory:
            return "oom";
    }
    return "";
}

class Snapshot {
public:
    Snapshot(const Schedule& schedule, const AllocatorLog& log, const TraceOptions& options)
        : schedule_(schedule), log_(log), options_(options) {}

    std::string write() {
        out_.begin_dict();
        out_.key("segments").begin_list();
        for (const AllocatorSegment& segment : log_.segments) {
            write_segment(segment);
        }
        out_.end_list();
        out_.key("device_traces").begin_list().begin_list();
        bool first = true;
        for (const AllocatorEvent& event : log_.events) {
            write_event(event, first);
            first = false;
        }
        out_.end_list().end_list();
        out_.key("allocator_settings")
            .begin_dict()
            .member("predicted_by", "fsdplan " + std::string(options_.version))
            .member("expandable_segments", log_.options.expandable_segments ? "True" : "False")
            .end_dict();
        out_.end_dict();
        return out_.take();
    }

private:
    /// Who asked for a buffer and what for, where a real snapshot has a stack.
    void write_frames(std::int32_t buffer, std::int32_t op) {
        out_.key("frames").begin_list();
        if (buffer >= 0) {
            const Buffer& what = schedule_.buffers[static_cast<std::size_t>(buffer)];
            std::string text(name(what.category));
            if (op >= 0) {
                text += ", " + std::string(name(schedule_.ops[static_cast<std::size_t>(op)].pass));
            }
            out_.begin_dict()
                .member("filename", place_name(schedule_, options_.modules, what.unit, what.module))
                .member("line", std::int64_t{0})
                .member("name", text)
                .end_dict();
        }
        out_.end_list();
    }

    void write_event(const AllocatorEvent& event, bool first) {
        using Kind = AllocatorEvent::Kind;
        out_.begin_dict().member("action", action(event.kind));
        if (event.kind == Kind::out_of_memory) {
            out_.member("device_free", event.device_free_bytes);
        } else {
            out_.member("addr", event.address);
        }
        out_.member("size", event.bytes)
            .member("stream", std::int64_t{event.stream})
            .member("time_us", event.time_ns / 1000);
        write_frames(event.buffer, event.op);
        if (event.kind == Kind::alloc) {
            const Buffer& buffer = schedule_.buffers[static_cast<std::size_t>(event.buffer)];
            out_.member("category", name(buffer.category));
        } else if (first) {
            out_.member("category", "unknown");  // one entry must have it, or the viewer draws nothing
        }
        out_.end_dict();
    }

    void write_segment(const AllocatorSegment& segment) {
        std::int64_t allocated = 0;
        std::int64_t active = 0;
        std::int64_t requested = 0;
        for (const AllocatorBlock& block : segment.blocks) {
            active += block.buffer >= 0 ? block.bytes : 0;
            allocated += block.buffer >= 0 && !block.waiting ? block.bytes : 0;
            requested += block.requested_bytes;
        }
        out_.begin_dict()
            .member("device", std::int64_t{0})
            .member("address", segment.address)
            .member("total_size", segment.bytes)
            .member("allocated_size", allocated)
            .member("active_size", active)
            .member("requested_size", requested)
            .member("stream", std::int64_t{segment.stream})
            .member("segment_type", segment.small ? "small" : "large")
            .key("segment_pool_id")
            .begin_tuple()
            .value(std::int64_t{0})
            .value(std::int64_t{0})
            .end_tuple()
            .member("is_expandable", log_.options.expandable_segments);
        write_frames(-1, -1);
        out_.key("blocks").begin_list();
        for (const AllocatorBlock& block : segment.blocks) {
            const char* const state = block.buffer < 0 ? "inactive"
                                      : block.waiting  ? "active_awaiting_free"
                                                       : "active_allocated";
            out_.begin_dict()
                .member("address", block.address)
                .member("size", block.bytes)
                .member("requested_size", block.requested_bytes)
                .member("state", state);
            write_frames(block.buffer, -1);
            out_.end_dict();
        }
        out_.end_list().end_dict();
    }

    const Schedule& schedule_;
    const AllocatorLog& log_;
    const TraceOptions& options_;
    PickleWriter out_;
};

}  // namespace

std::string snapshot_report(const Schedule& schedule, const AllocatorLog& log, const TraceOptions& options) {
    return Snapshot(schedule, log, options).write();
}

}  // namespace fsdplan
