#include "execute/streams.hpp"

#include <algorithm>
#include <utility>

namespace fsdplan {

StreamThreads::StreamThreads() {
    for (Lane& lane : lanes_) {
        threads_.emplace_back([this, &lane] { work_on(lane); });
    }
}

StreamThreads::~StreamThreads() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

void StreamThreads::reset(std::size_t ops) {
    const std::lock_guard lock(mutex_);
    for (Lane& lane : lanes_) {
        lane.issued = 0;
        lane.done = 0;
    }
    is_done_.assign(ops, false);
    spans_.assign(ops, {});
    start_ = std::chrono::steady_clock::now();
}

void StreamThreads::issue(Stream stream, Task task) {
    {
        const std::lock_guard lock(mutex_);
        Lane& lane = lanes_[static_cast<std::size_t>(stream)];
        ++lane.issued;
        lane.tasks.push_back(std::move(task));
    }
    changed_.notify_all();
}

void StreamThreads::wait_for(std::size_t op) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_done_[op] || failure_; });
    rethrow();
}

void StreamThreads::finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return all_done() || failure_; });
    rethrow();
}

std::int64_t StreamThreads::done(Stream stream) {
    const std::lock_guard lock(mutex_);
    return lanes_[static_cast<std::size_t>(stream)].done;
}

std::int64_t StreamThreads::now_ns() const {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
}

void StreamThreads::rethrow() const {
    if (failure_) {
        std::rethrow_exception(failure_);
    }
}

bool StreamThreads::all_done() const {
    return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.done == lane.issued; });
}

void StreamThreads::work_on(Lane& lane) {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return !lane.tasks.empty() || ending_; });
        if (lane.tasks.empty()) {
            return;
        }
        const Task task = std::move(lane.tasks.front());
        lane.tasks.pop_front();
        if (!failure_) {
            do_task(lock, task);
        }
        ++lane.done;
        changed_.notify_all();
    }
}

void StreamThreads::do_task(std::unique_lock<std::mutex>& lock, const Task& task) {
    OpSpan span{.start_ns = now_ns()};
    if (task.after >= 0) {
        const auto after = static_cast<std::size_t>(task.after);
        changed_.wait(lock, [&] { return is_done_[after] || failure_ || ending_; });
    }
    if (task.work && !failure_) {
        lock.unlock();
        span.start_ns = now_ns();
        std::exception_ptr failure;
        try {
            task.work();
        } catch (...) {
            failure = std::current_exception();
        }
        lock.lock();
        failure_ = failure_ ? failure_ : failure;
    }
    span.end_ns = now_ns();
    spans_[task.op] = span;
    is_done_[task.op] = true;
}

}  // namespace fsdplan
