#include "report/pickle_writer.hpp"

#include <limits>
#include <utility>

#include "fsdplan/base.hpp"

namespace fsdplan {
namespace {

// Opcodes by their names in CPython's pickletools.
constexpr char mark = '(';
constexpr char appends = 'e';
constexpr char set_items = 'u';
constexpr char tuple = 't';
constexpr char bin_int = 'J';
constexpr char bin_int_1 = 'K';
constexpr char bin_int_2 = 'M';
constexpr char long_1 = '\x8a';
constexpr char new_true = '\x88';
constexpr char new_false = '\x89';
constexpr char bin_unicode = 'X';
constexpr char bin_put = 'q';
constexpr char long_bin_put = 'r';
constexpr char bin_get = 'h';
constexpr char long_bin_get = 'j';
constexpr char stop = '.';

}  // namespace

PickleWriter::PickleWriter() : out_("\x80\x02") {}

void PickleWriter::little_endian(std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) {
        out_ += static_cast<char>(number >> (8U * static_cast<unsigned>(i)) & 0xffU);
    }
}

void PickleWriter::before_item() {
    if (levels_.empty() || levels_.back().kind != Kind::list) {
        return;
    }
    Level& list = levels_.back();
    if (list.items == most_items_at_once) {
        out_ += appends;
        list.items = 0;
    }
    if (list.items == 0) {
        out_ += mark;
    }
    ++list.items;
}

void PickleWriter::begin(Kind kind, std::string_view code) {
    before_item();
    out_ += code;
    levels_.push_back({.kind = kind});
}

PickleWriter& PickleWriter::begin_dict() {
    begin(Kind::dict, "}(");
    return *this;
}

PickleWriter& PickleWriter::begin_list() {
    begin(Kind::list, "]");
    return *this;
}

PickleWriter& PickleWriter::begin_tuple() {
    begin(Kind::tuple, "(");
    return *this;
}

PickleWriter& PickleWriter::end_dict() {
    out_ += set_items;
    levels_.pop_back();
    return *this;
}

PickleWriter& PickleWriter::end_list() {
    if (levels_.back().items > 0) {
        out_ += appends;
    }
    levels_.pop_back();
    return *this;
}

PickleWriter& PickleWriter::end_tuple() {
    out_ += tuple;
    levels_.pop_back();
    return *this;
}

void PickleWriter::text(std::string_view text) {
    constexpr std::uint32_t one_byte = 256;
    const auto next = static_cast<std::uint32_t>(known_.size());
    const auto [entry, is_new] = known_.emplace(std::string(text), next);
    const std::uint32_t place = entry->second;
    if (is_new) {
        out_ += bin_unicode;
        little_endian(text.size(), 4);
        out_ += text;
    }
    if (place < one_byte) {
        out_ += is_new ? bin_put : bin_get;
        little_endian(place, 1);
    } else {
        out_ += is_new ? long_bin_put : long_bin_get;
        little_endian(place, 4);
    }
}

PickleWriter& PickleWriter::key(std::string_view name) {
    text(name);
    return *this;
}

PickleWriter& PickleWriter::value(std::string_view shown) {
    before_item();
    text(shown);
    return *this;
}

PickleWriter& PickleWriter::value(bool truth) {
    before_item();
    out_ += truth ? new_true : new_false;
    return *this;
}

PickleWriter& PickleWriter::value(std::int64_t number) {
    before_item();
    const auto bits = static_cast<std::uint64_t>(number);
    if (number >= 0 && number <= std::numeric_limits<std::uint8_t>::max()) {
        out_ += bin_int_1;
        little_endian(bits, 1);
    } else if (number >= 0 && number <= std::numeric_limits<std::uint16_t>::max()) {
        out_ += bin_int_2;
        little_endian(bits, 2);
    } else if (number >= std::numeric_limits<std::int32_t>::min() &&
               number <= std::numeric_limits<std::int32_t>::max()) {
        out_ += bin_int;
        little_endian(bits, 4);
    } else {
        out_ += long_1;
        little_endian(8, 1);
        little_endian(bits, 8);
    }
    return *this;
}

std::string PickleWriter::take() {
    FSDPLAN_ASSERT(levels_.empty(), "everything that was begun has ended");
    out_ += stop;
    return std::move(out_);
}

}  // namespace fsdplan
