#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fsdplan {

/// Writes one value as a pickle of protocol 2, with the opcodes that the viewer of PyTorch's memory snapshots
/// reads: dicts, lists, tuples, integers, truth values and texts, nothing else. Repeated texts are stored
/// once.
class PickleWriter {
public:
    PickleWriter();

    PickleWriter& begin_dict();
    PickleWriter& end_dict();
    PickleWriter& begin_list();
    PickleWriter& end_list();
    PickleWriter& begin_tuple();
    PickleWriter& end_tuple();
    /// Inside a dict, in front of each value.
    PickleWriter& key(std::string_view name);

    PickleWriter& value(std::int64_t number);
    PickleWriter& value(std::string_view text);
    PickleWriter& value(const char* text) { return value(std::string_view(text)); }
    PickleWriter& value(bool truth);

    template <typename Value>
    PickleWriter& member(std::string_view name, const Value& v) {
        return key(name).value(v);
    }

    std::string take();

private:
    // The viewer spreads the items of one APPENDS over its call stack.
    static constexpr int most_items_at_once = 1000;
    enum class Kind : std::uint8_t { dict, list, tuple };
    struct Level {
        Kind kind{};
        int items = 0;  // since the last MARK
    };

    void before_item();
    void begin(Kind kind, std::string_view code);
    void little_endian(std::uint64_t number, int bytes);
    void text(std::string_view text);

    std::string out_;
    std::vector<Level> levels_;
    std::unordered_map<std::string, std::uint32_t> known_;  // looked up, never iterated over
};

}  // namespace fsdplan
