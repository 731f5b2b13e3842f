#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

// What a program asked of the allocator, recorded and described.
namespace fsdplan::test {

/// What is allocated, and what is held then.
struct Request {
    std::int64_t bytes = 0;
    std::int64_t held = 0;

    friend bool operator==(const Request&, const Request&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Request& r) {
        return out << '+' << r.bytes << " of " << r.held;
    }
};

/// Numbers, and the few hundred bytes in which kernels share out a sum, do not count.
class Requests {
public:
    void allocate(std::int64_t bytes) {
        if (bytes > smallest_block) {
            held_ += bytes;
            all.push_back({bytes, held_});
        }
    }
    /// What was let go a moment ago has another holder.
    void keep(std::int64_t bytes) { held_ += bytes > smallest_block ? bytes : 0; }
    void free(std::int64_t bytes) { held_ -= bytes > smallest_block ? bytes : 0; }

    std::vector<Request> all;

private:
    static constexpr std::int64_t smallest_block = 512;
    std::int64_t held_ = 0;
};

/// "+bytes" allocates, "-i" releases the i-th, "-" what was there before.
inline std::vector<Request> recorded_requests(std::string_view events) {
    Requests out;
    std::vector<std::int64_t> sizes;
    while (!events.empty()) {
        const std::string_view event = events.substr(0, events.find(' '));
        events.remove_prefix(std::min(event.size() + 1, events.size()));
        std::int64_t number = 0;
        std::from_chars(event.data() + 1, event.data() + event.size(), number);
        if (event.front() == '+') {
            sizes.push_back(number);
            out.allocate(number);
        } else if (event.size() > 1) {
            out.free(sizes.at(static_cast<std::size_t>(number)));
        }
    }
    return out.all;
}

}  // namespace fsdplan::test
