#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "fsdplan/schedule.hpp"

namespace fsdplan {

/// Writes operations behind one another into a schedule. Knows which pass is under way and the stream that
/// the host currently issues to.
class Emitter {
public:
    explicit Emitter(Schedule& out) : out_(out) {}

    Pass pass = Pass::forward;

    /// Makes room, so that the tables need not move while they grow.
    void reserve(std::size_t ops, std::size_t buffers);

    /// Adds a buffer to the table; it has no memory before allocate().
    std::int32_t buffer(const Buffer& buffer) {
        out_.buffers.push_back(buffer);
        live_.push_back(0);
        return static_cast<std::int32_t>(out_.buffers.size()) - 1;
    }
    const Buffer& at(std::int32_t buffer) const { return out_.buffers[static_cast<std::size_t>(buffer)]; }
    bool is_live(std::int32_t buffer) const {
        return buffer >= 0 && live_[static_cast<std::size_t>(buffer)] != 0;  // -1: no buffer
    }

    // Buffers without bytes leave no trace.
    void allocate(std::int32_t buffer);
    void free(std::int32_t buffer);
    /// free(), if it is allocated.
    void release(std::int32_t buffer);
    void use(std::int32_t buffer, Stream stream);
    void relabel(std::int32_t buffer, Category category);

    /// Row of Schedule::collectives for this call.
    std::int32_t collective(const CollectiveCall& call);
    void issue(std::int32_t collective, std::int32_t unit, Stream stream, bool prefetched = false);

    void copy(std::int64_t bytes, std::int32_t unit, Stream stream, OpKind kind = OpKind::copy,
              std::int32_t launches = 1);
    void host(HostWork work, std::int32_t unit);

    /// Index of the event.
    std::int32_t record(Stream stream);
    void wait(Stream stream, std::int32_t event);
    void block(std::int32_t event);
    /// Everything issued to `stream` from here on starts after all that `earlier` holds now.
    void after(Stream stream, Stream earlier) { wait(stream, record(earlier)); }

    void mark(Mark mark, std::int32_t unit = -1, std::int64_t number = 0);
    void mark_module(Mark mark, std::int32_t module, std::int32_t unit);
    void add(const Op& op) { out_.ops.push_back(op); }
    /// What the targets of compute operations are rows of.
    void shapes(const std::vector<KernelShape>& shapes) { out_.shapes = shapes; }

private:
    Buffer& row(std::int32_t buffer) { return out_.buffers[static_cast<std::size_t>(buffer)]; }

    Schedule& out_;
    std::vector<char> live_;
    using Key = std::tuple<int, int, int, int, std::int64_t, std::int64_t, std::int64_t>;
    std::map<Key, std::int32_t> collectives_;
};

// Most of a schedule is buffers that come and go.

inline void Emitter::allocate(std::int32_t buffer) {
    const Buffer& b = row(buffer);
    if (b.bytes == 0) {
        return;
    }
    FSDPLAN_ASSERT(!is_live(buffer), "a buffer is allocated once before it is freed");
    live_[static_cast<std::size_t>(buffer)] = 1;
    add({.kind = OpKind::allocate,
         .stream = b.stream,
         .pass = pass,
         .unit = b.unit,
         .target = buffer,
         .bytes = b.bytes});
}

inline void Emitter::free(std::int32_t buffer) {
    const Buffer& b = row(buffer);
    if (b.bytes == 0) {
        return;
    }
    FSDPLAN_ASSERT(is_live(buffer), "only what is allocated is freed");
    live_[static_cast<std::size_t>(buffer)] = 0;
    add({.kind = OpKind::free,
         .stream = b.stream,
         .pass = pass,
         .unit = b.unit,
         .target = buffer,
         .bytes = b.bytes});
}

inline void Emitter::release(std::int32_t buffer) {
    if (buffer >= 0 && is_live(buffer)) {
        free(buffer);
    }
}

}  // namespace fsdplan
