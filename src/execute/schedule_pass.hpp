#pragma once

#include <array>
#include <optional>
#include <set>
#include <span>

#include "fsdplan/execute.hpp"
#include "simulate/device_memory.hpp"

namespace fsdplan {

/// The device's memory behind the allocator's bookkeeping. What is still taken at the end goes back.
class Segments {
public:
    explicit Segments(Backend& backend) : backend_(backend) {}
    Segments(const Segments&) = delete;
    Segments& operator=(const Segments&) = delete;
    Segments(Segments&&) = delete;
    Segments& operator=(Segments&&) = delete;
    ~Segments();

    /// Does what the allocator asked the driver for; false when the device has not so much.
    bool follow(std::span<const DriverCall> calls);

private:
    Backend& backend_;
    std::set<std::int64_t> taken_;
};

/// One pass over a schedule that a backend has prepared and started.
class SchedulePass {
public:
    SchedulePass(const Schedule& schedule, Backend& backend, const MemorySetup& setup);

    /// Throws what the backend throws.
    void play();

    Timeline& timeline() { return timeline_; }
    MemoryProfile take_memory();

private:
    bool memory_is_followed() const { return !memory_.out_of_memory() && !out_of_memory_; }
    void do_op(std::size_t op);
    void do_memory(std::size_t op);
    void run_out(std::size_t op);

    const Schedule& schedule_;
    Backend& backend_;
    DeviceMemory memory_;
    Segments segments_;
    Timeline timeline_;
    std::array<std::int64_t, stream_count> issued_{};  // operations of each stream
    std::optional<OutOfMemory> out_of_memory_;         // of the device, before the budget
};

}  // namespace fsdplan
