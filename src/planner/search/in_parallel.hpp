#pragma once

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace fsdplan {

/// Calls `one` for each index, on as many threads as there are cores. The results do not hang on that.
template <typename One>
void in_parallel(std::size_t count, const One& one) {
    const std::size_t threads =
        std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, std::max<std::size_t>(1, count));
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < count; i = next++) {
            one(i);
        }
    };
    std::vector<std::future<void>> others;
    for (std::size_t t = 1; t < threads; ++t) {
        others.push_back(std::async(std::launch::async, work));
    }
    work();
    for (std::future<void>& other : others) {
        other.get();  // with what it threw
    }
}

}  // namespace fsdplan
