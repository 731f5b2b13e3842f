#include "execute/schedule_pass.hpp"

#include "simulate/lanes.hpp"

namespace fsdplan {

Segments::~Segments() {
    for (const std::int64_t segment : taken_) {
        backend_.give_back_segment(segment);
    }
}

bool Segments::follow(std::span<const DriverCall> calls) {
    for (const DriverCall& call : calls) {
        if (call.kind == DriverCall::Kind::malloc) {
            if (!backend_.take_segment(call.segment, {call.bytes})) {
                return false;
            }
            taken_.insert(call.segment);
        } else if (call.kind == DriverCall::Kind::free) {
            backend_.give_back_segment(call.segment);
            taken_.erase(call.segment);
        } else {
            FSDPLAN_ASSERT(call.kind == DriverCall::Kind::refused, "no option asks for expandable segments");
        }
    }
    return true;
}

SchedulePass::SchedulePass(const Schedule& schedule, Backend& backend, const MemorySetup& setup)
    : schedule_(schedule), backend_(backend), memory_(schedule, setup, nullptr), segments_(backend) {
    const std::size_t ops = schedule.ops.size();
    timeline_.issued_ns.resize(ops);
    timeline_.start_ns.resize(ops);
    timeline_.end_ns.resize(ops);
}

void SchedulePass::play() {
    for (std::size_t op = 0; op < schedule_.ops.size(); ++op) {
        timeline_.start_ns[op] = backend_.now_ns();
        do_op(op);
        timeline_.issued_ns[op] = backend_.now_ns();
        timeline_.end_ns[op] = timeline_.issued_ns[op];
    }
    backend_.finish();
    for (std::size_t op = 0; op < schedule_.ops.size(); ++op) {
        if (on_stream(schedule_.ops[op].kind)) {
            const OpSpan span = backend_.span(op);
            timeline_.start_ns[op] = span.start_ns;
            timeline_.end_ns[op] = span.end_ns;
        }
    }
}

MemoryProfile SchedulePass::take_memory() {
    MemoryProfile profile = memory_.take();
    if (out_of_memory_) {
        profile.out_of_memory = out_of_memory_;
    }
    return profile;
}

void SchedulePass::do_op(std::size_t op) {
    const Op& what = schedule_.ops[op];
    if (on_stream(what.kind)) {
        issued_[static_cast<std::size_t>(what.stream)] += 1;
        backend_.issue(op);
    } else if (what.kind == OpKind::block) {
        if (what.target >= 0) {
            backend_.wait_for(static_cast<std::size_t>(what.target));
        }
    } else if (memory_is_followed()) {
        do_memory(op);
    }
}

/// The allocator learns how far the device is, and the device what the allocator took or gave back.
void SchedulePass::do_memory(std::size_t op) {
    CachingAllocator& allocator = memory_.allocator();
    const OpKind kind = schedule_.ops[op].kind;
    for (std::size_t s = 0; s < stream_count; ++s) {
        if (kind == OpKind::free) {
            allocator.issued(static_cast<int>(s), issued_[s]);
        } else if (kind == OpKind::allocate) {
            allocator.reached(static_cast<int>(s), backend_.done(static_cast<Stream>(s)));
        }
    }
    memory_.apply(op, 0);
    if (kind == OpKind::allocate && !segments_.follow(allocator.driver_calls())) {
        run_out(op);
    }
}

/// The device has less than the budget says.
void SchedulePass::run_out(std::size_t op) {
    const AllocatorStatistics& statistics = memory_.allocator().statistics();
    out_of_memory_ = OutOfMemory{
        .op = static_cast<std::int32_t>(op),
        .requested_bytes = schedule_.buffers[static_cast<std::size_t>(schedule_.ops[op].target)].bytes,
        .allocated_bytes = statistics.allocated_bytes,
        .reserved_bytes = statistics.reserved_bytes,
        .free_bytes = 0};
}

}  // namespace fsdplan
