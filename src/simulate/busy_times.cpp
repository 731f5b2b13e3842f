#include "simulate/busy_times.hpp"

namespace fsdplan {

void BusyTimes::add(std::int64_t begin, std::int64_t end) {
    if (begin == end) {
        return;
    }
    Span span{begin, end};
    // Groups have communicators of their own, so that one may begin before another has ended.
    while (!spans_.empty() && spans_.back().end >= span.begin) {
        span = {std::min(span.begin, spans_.back().begin), std::max(span.end, spans_.back().end)};
        spans_.pop_back();
    }
    for (std::size_t& at : at_) {
        at = std::min(at, spans_.size());
    }
    spans_.push_back(span);
}

std::int64_t BusyTimes::slowed_end(std::size_t at, std::int64_t begin, std::int64_t ns, double speed) const {
    std::int64_t now = begin;
    std::int64_t left = ns;
    for (; at < spans_.size() && now + left > spans_[at].begin; ++at) {
        const std::int64_t alone = std::max<std::int64_t>(0, spans_[at].begin - now);
        now += alone;
        left -= alone;
        const std::int64_t shared = spans_[at].end - now;
        const auto done = static_cast<std::int64_t>(speed * static_cast<double>(shared));
        if (left <= done) {
            return now + static_cast<std::int64_t>(std::ceil(static_cast<double>(left) / speed));
        }
        now += shared;
        left -= done;
    }
    return now + left;
}

}  // namespace fsdplan
