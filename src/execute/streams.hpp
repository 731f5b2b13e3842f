#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "fsdplan/execute.hpp"

namespace fsdplan {

/// Streams on a host: a thread each, which does what it is handed in order. After the first exception nothing
/// more is done, nobody waits any longer, and wait_for() and finish() throw it.
class StreamThreads {
public:
    StreamThreads();
    StreamThreads(const StreamThreads&) = delete;
    StreamThreads& operator=(const StreamThreads&) = delete;
    StreamThreads(StreamThreads&&) = delete;
    StreamThreads& operator=(StreamThreads&&) = delete;
    ~StreamThreads();

    /// Forgets all operations; from now on there are so many, and it is time 0. Everything is finished.
    void reset(std::size_t ops);

    struct Task {
        std::size_t op = 0;
        std::int32_t after = -1;       ///< an operation that was issued before; -1: none
        std::function<void()> work{};  ///< empty: an event, or a wait, which lasts from when it is reached
    };
    void issue(Stream stream, Task task);
    /// The caller waits for an issued operation.
    void wait_for(std::size_t op);
    void finish();

    /// Operations that the stream has done since reset().
    std::int64_t done(Stream stream);
    std::int64_t now_ns() const;
    /// After finish().
    OpSpan span(std::size_t op) const { return spans_[op]; }

private:
    struct Lane {
        std::deque<Task> tasks;
        std::int64_t issued = 0;
        std::int64_t done = 0;
    };

    void work_on(Lane& lane);
    void do_task(std::unique_lock<std::mutex>& lock, const Task& task);
    void rethrow() const;
    bool all_done() const;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::array<Lane, stream_count> lanes_;
    std::vector<bool> is_done_;  // by operation
    std::vector<OpSpan> spans_;
    std::exception_ptr failure_;
    bool ending_ = false;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::vector<std::thread> threads_;
};

}  // namespace fsdplan
