#include "base/pickle.hpp"

#include <array>
#include <bit>
#include <utility>

namespace fsdplan::pickle {
namespace {

std::string place(const std::string& file, std::size_t byte) {
    return file + " at byte " + std::to_string(byte);
}

std::string_view name_of(Type type) {
    constexpr std::array<std::string_view, 8> names{"None",     "a bool", "an integer", "a float",
                                                    "a string", "a list", "a tuple",    "a dict"};
    return names.at(static_cast<std::size_t>(type));
}

}  // namespace

/// The pickle machine: a stack of values and marks, and the memo.
class Machine {
public:
    explicit Machine(Document& document) : out_(document) {}

    void run() {
        if (out_.bytes_.size() < 2 || out_.bytes_[0] != '\x80') {
            fail("is no pickle of protocol 2 to 4");
        }
        while (step()) {
        }
        if (stack_.size() != 1 || !marks_.empty()) {
            fail("a pickle ends with one value, here are " + std::to_string(stack_.size()));
        }
        out_.root_ = stack_.front();
    }

private:
    using Node = Document::Node;

    [[noreturn]] void fail(const std::string& message) const {
        throw Error(ErrorKind::input, place(out_.file_, opcode_at_), message);
    }

    std::string_view take(std::size_t size) {
        if (size > out_.bytes_.size() - next_) {
            fail("the pickle is cut off");
        }
        const std::string_view taken = std::string_view(out_.bytes_).substr(next_, size);
        next_ += size;
        return taken;
    }

    std::uint64_t little_endian(std::size_t size) {
        std::uint64_t value = 0;
        unsigned shift = 0;
        for (const char c : take(size)) {
            value |= std::uint64_t{static_cast<unsigned char>(c)} << shift;
            shift += 8;
        }
        return value;
    }

    void check_room(std::size_t size) const {
        if (size >= Document::most_values) {
            fail("has more than " + std::to_string(Document::most_values) + " values");
        }
    }

    std::uint32_t add(Node node) {
        check_room(out_.nodes_.size());
        node.byte = opcode_at_;
        out_.nodes_.push_back(node);
        return static_cast<std::uint32_t>(out_.nodes_.size() - 1);
    }

    void push(std::uint32_t value) {
        check_room(stack_.size());
        stack_.push_back(value);
    }
    void push_integer(Type type, std::int64_t value) {
        Node node;
        node.type = type;
        node.integer = value;
        push(add(node));
    }
    void push_string(std::size_t size) {
        const std::size_t begin = next_;
        take(size);
        Node node;
        node.type = Type::string;
        node.integer = static_cast<std::int64_t>(begin);
        node.size = size;
        push(add(node));
    }
    void push_real() {
        std::uint64_t bits = 0;
        for (const char c : take(sizeof bits)) {
            bits = bits << 8U | static_cast<unsigned char>(c);
        }
        Node node;
        node.type = Type::real;
        node.real = std::bit_cast<double>(bits);
        push(add(node));
    }
    // Two's complement of `size` bytes.
    void push_long(std::size_t size) {
        if (size > sizeof(std::uint64_t)) {
            fail("an integer of more than 64 bits");
        }
        std::uint64_t value = little_endian(size);
        const auto bits = static_cast<unsigned>(8 * size);
        if (size > 0 && size < sizeof value && (value >> (bits - 1) & 1U) != 0) {
            value |= ~std::uint64_t{0} << bits;
        }
        push_integer(Type::integer, static_cast<std::int64_t>(value));
    }

    void push_container(Type type, std::vector<std::uint32_t> items) {
        out_.items_.push_back(std::move(items));
        push_integer(type, static_cast<std::int64_t>(out_.items_.size() - 1));
    }

    std::uint32_t pop() {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        if (stack_.size() <= floor) {
            fail("takes a value where there is none");
        }
        const std::uint32_t top = stack_.back();
        stack_.pop_back();
        return top;
    }
    std::vector<std::uint32_t> pop_many(std::size_t count) {
        std::vector<std::uint32_t> out(count);
        while (count > 0) {
            out[--count] = pop();
        }
        return out;
    }
    std::vector<std::uint32_t> pop_to_mark() {
        if (marks_.empty()) {
            fail("takes values back to a mark where there is none");
        }
        const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        std::vector<std::uint32_t> out(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        marks_.pop_back();
        return out;
    }
    std::uint32_t top() {
        const std::uint32_t value = pop();
        push(value);
        return value;
    }

    void extend(Type type, const std::vector<std::uint32_t>& more) {
        const Node& container = out_.nodes_[top()];
        if (container.type != type) {
            fail("adds to " + std::string(name_of(container.type)) + " as if it were " +
                 std::string(name_of(type)));
        }
        if (type == Type::dict && more.size() % 2 != 0) {
            fail("a dict with a key without a value");
        }
        std::vector<std::uint32_t>& items = out_.items_[static_cast<std::size_t>(container.integer)];
        items.insert(items.end(), more.begin(), more.end());
        added_ += more.size();
        check_room(added_);
    }

    void put(std::uint64_t number) {
        const std::uint32_t value = top();
        if (number > memo_.size()) {
            fail("memo number " + std::to_string(number) + " out of order");
        }
        if (number == memo_.size()) {
            check_room(memo_.size());
            memo_.push_back(value);
        } else {
            memo_[number] = value;
        }
    }
    void get(std::uint64_t number) {
        if (number >= memo_.size()) {
            fail("memo number " + std::to_string(number) + " was never set");
        }
        push(memo_[number]);
    }

    void check_protocol() {
        const std::uint64_t protocol = little_endian(1);
        if (protocol < 2 || protocol > 4) {
            fail("protocol " + std::to_string(protocol) + "; expected 2 to 4");
        }
    }

    /// One opcode; false after the last.
    bool step() {
        opcode_at_ = next_;
        const auto opcode = static_cast<unsigned char>(take(1).front());
        return opcode != '.' && (simple_value(opcode) || container(opcode) || memo(opcode) || refuse(opcode));
    }

    bool simple_value(unsigned char opcode) {
        switch (opcode) {
            case 'N':
                push_integer(Type::none, 0);
                return true;
            case 0x88:
            case 0x89:
                push_integer(Type::boolean, opcode == 0x88 ? 1 : 0);
                return true;
            case 'K':
                push_integer(Type::integer, static_cast<std::int64_t>(little_endian(1)));
                return true;
            case 'M':
                push_integer(Type::integer, static_cast<std::int64_t>(little_endian(2)));
                return true;
            case 'J':
                push_integer(Type::integer,
                             static_cast<std::int32_t>(static_cast<std::uint32_t>(little_endian(4))));
                return true;
            case 0x8a:
                push_long(little_endian(1));
                return true;
            case 'G':
                push_real();
                return true;
            case 0x8c:
                push_string(little_endian(1));
                return true;
            case 'X':
                push_string(little_endian(4));
                return true;
            default:
                return false;
        }
    }

    bool container(unsigned char opcode) {
        switch (opcode) {
            case '(':
                if (marks_.size() == Document::deepest_nesting) {
                    fail("is nested deeper than " + std::to_string(Document::deepest_nesting));
                }
                marks_.push_back(stack_.size());
                return true;
            case ']':
                push_container(Type::list, {});
                return true;
            case 'l':
                push_container(Type::list, pop_to_mark());
                return true;
            case 'a':
                extend(Type::list, pop_many(1));
                return true;
            case 'e':
                extend(Type::list, pop_to_mark());
                return true;
            case '}':
                push_container(Type::dict, {});
                return true;
            case 'd': {
                const std::vector<std::uint32_t> items = pop_to_mark();
                push_container(Type::dict, {});
                extend(Type::dict, items);
                return true;
            }
            case 's':
                extend(Type::dict, pop_many(2));
                return true;
            case 'u':
                extend(Type::dict, pop_to_mark());
                return true;
            case ')':
                push_container(Type::tuple, {});
                return true;
            case 't':
                push_container(Type::tuple, pop_to_mark());
                return true;
            case 0x85:
            case 0x86:
            case 0x87:
                push_container(Type::tuple, pop_many(opcode - 0x84U));
                return true;
            default:
                return false;
        }
    }

    bool memo(unsigned char opcode) {
        switch (opcode) {
            case 0x80:
                check_protocol();
                return true;
            case 0x95:
                little_endian(8);  // a frame's size, which only helps to read ahead
                return true;
            case 0x94:
                put(memo_.size());
                return true;
            case 'q':
                put(little_endian(1));
                return true;
            case 'r':
                put(little_endian(4));
                return true;
            case 'h':
                get(little_endian(1));
                return true;
            case 'j':
                get(little_endian(4));
                return true;
            default:
                return false;
        }
    }

    [[noreturn]] bool refuse(unsigned char opcode) const {
        fail("opcode " + std::to_string(opcode) +
             "; expected plain data: no classes, no calls, no byte strings");
    }

    Document& out_;
    std::size_t next_ = 0;
    std::size_t opcode_at_ = 0;
    std::size_t added_ = 0;
    std::vector<std::uint32_t> stack_;
    std::vector<std::size_t> marks_;
    std::vector<std::uint32_t> memo_;
};

Document::Document(std::string bytes, std::string file) : file_(std::move(file)), bytes_(std::move(bytes)) {
    Machine(*this).run();
}

Value Document::root() const {
    return {this, root_};
}

bool Value::boolean() const {
    if (type() != Type::boolean) {
        fail("a bool");
    }
    return node().integer != 0;
}

std::int64_t Value::integer() const {
    if (type() != Type::integer) {
        fail("an integer");
    }
    return node().integer;
}

double Value::number() const {
    if (type() != Type::integer && type() != Type::real) {
        fail("a number");
    }
    return type() == Type::real ? node().real : static_cast<double>(node().integer);
}

std::string_view Value::string() const {
    if (type() != Type::string) {
        fail("a string");
    }
    return std::string_view(document_->bytes_).substr(static_cast<std::size_t>(node().integer), node().size);
}

std::vector<Value> Value::elements() const {
    if (type() != Type::list && type() != Type::tuple) {
        fail("a list");
    }
    std::vector<Value> out;
    out.reserve(items().size());
    for (const std::uint32_t item : items()) {
        out.push_back(Value(document_, item));
    }
    return out;
}

std::optional<Value> Value::find(std::string_view key) const {
    if (type() != Type::dict) {
        fail("a dict");
    }
    // As in Python, the last of equal keys counts.
    const std::vector<std::uint32_t>& entries = items();
    for (std::size_t i = entries.size(); i >= 2; i -= 2) {
        const Value name(document_, entries[i - 2]);
        if (name.type() == Type::string && name.string() == key) {
            return Value(document_, entries[i - 1]);
        }
    }
    return std::nullopt;
}

Value Value::at(std::string_view key) const {
    const std::optional<Value> found = find(key);
    if (!found) {
        fail("a dict with \"" + std::string(key) + "\"");
    }
    return *found;
}

void Value::fail(std::string_view expected) const {
    throw Error(ErrorKind::input, place(document_->file_, node().byte),
                "expected " + std::string(expected) + ", found " + std::string(name_of(type())));
}

}  // namespace fsdplan::pickle
