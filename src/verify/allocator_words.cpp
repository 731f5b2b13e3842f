#include "verify/allocator_words.hpp"

#include <algorithm>

#include "verify/words.hpp"

namespace fsdplan {
namespace {

constexpr std::array<std::string_view, 7> call_names{"malloc",    "free", "refused", "reserve",
                                                     "unreserve", "map",  "unmap"};

}  // namespace

DriverCall read_call(const json::Value& list) {
    std::vector<json::Value> parts;
    for (const json::Value part : list.elements()) {
        parts.push_back(part);
    }
    if (parts.empty()) {
        list.fail("a driver call");
    }
    using Kind = DriverCall::Kind;
    const auto name = std::ranges::find(call_names, parts[0].string());
    if (name == call_names.end()) {
        parts[0].fail("the name of a driver call");
    }
    DriverCall call{.kind = static_cast<Kind>(name - call_names.begin())};
    const bool pages = call.kind == Kind::map || call.kind == Kind::unmap;
    const bool sized = call.kind != Kind::free && call.kind != Kind::unreserve;
    std::vector<std::int64_t*> numbers;
    if (call.kind != Kind::refused) {
        numbers.push_back(&call.segment);
    }
    if (pages) {
        numbers.push_back(&call.offset_bytes);
    }
    if (sized) {
        numbers.push_back(&call.bytes);
    }
    if (parts.size() != numbers.size() + 1) {
        list.fail("a driver call with " + std::to_string(numbers.size()) + " numbers");
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        *numbers[i] = parts[i + 1].integer(0, largest_total);
    }
    return call;
}

std::string shown_calls(std::vector<DriverCall> calls) {
    std::ranges::sort(calls);
    std::string out;
    for (const DriverCall& call : calls) {
        out += (out.empty() ? "" : ", ") + std::string(call_names.at(static_cast<std::size_t>(call.kind)));
        if (call.segment >= 0) {
            out += " " + std::to_string(call.segment);
        }
        out += " +" + std::to_string(call.offset_bytes) + " " + std::to_string(call.bytes);
    }
    return out.empty() ? "none" : out;
}

std::string shown_result(const Allocation& got) {
    switch (got.outcome) {
        case Allocation::Outcome::out_of_memory:
            return "null";
        case Allocation::Outcome::empty:
            return "0";
        case Allocation::Outcome::placed:
            break;
    }
    return joined(std::array{got.segment, got.offset_bytes, got.block_bytes});
}

std::string shown_result(const json::Value& recorded) {
    return recorded.is_array() ? joined(read_numbers<3>(recorded)) : recorded.shown();
}

std::string shown_layout(const json::Value& layout) {
    std::string out;
    for (const json::Value run : layout.elements()) {
        for (const json::Value part : run.elements()) {
            if (!part.is_array()) {
                out += word_of(part) + " ";
                continue;
            }
            for (const json::Value block : part.elements()) {
                out += "[" + joined(read_numbers<2>(block)) + "]";
            }
        }
        out += "; ";
    }
    return out;
}

std::string shown_layout(const std::vector<CachingAllocator::SegmentView>& layout) {
    std::string out;
    for (const CachingAllocator::SegmentView& run : layout) {
        out += joined(std::array{run.segment, run.offset_bytes, run.bytes, std::int64_t{run.stream}});
        out += run.small ? " small " : " large ";
        for (const CachingAllocator::BlockView& block : run.blocks) {
            const int state = block.state == CachingAllocator::State::free        ? 0
                              : block.state == CachingAllocator::State::allocated ? 1
                                                                                  : 2;
            out += "[" + joined(std::array{block.bytes, std::int64_t{state}}) + "]";
        }
        out += "; ";
    }
    return out;
}

}  // namespace fsdplan
