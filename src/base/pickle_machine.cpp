#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/pickle.hpp"

namespace fsdplan::pickle {

/// The pickle machine: a stack of values and marks, and the memo. It fills a document and runs nothing.
class Machine {
public:
    Machine(Document& document, Content content) : out_(document), content_(content) {}

    void run() {
        if (out_.bytes_.size() > std::numeric_limits<std::uint32_t>::max()) {
            fail("is longer than 4 GiB");
        }
        if (out_.bytes_.size() < 2 || out_.bytes_[0] != '\x80') {
            fail("is no pickle of protocol 2 to 5");
        }
        out_.nodes_.emplace_back();  // Document::absent
        while (step()) {
        }
        if (stack_.size() != 1 || !marks_.empty()) {
            fail("a pickle ends with one value, here are " + std::to_string(stack_.size()));
        }
        out_.root_ = stack_.front();
    }

private:
    using Node = Document::Node;
    using Indices = std::span<const std::uint32_t>;

    [[noreturn]] void fail(const std::string& message) const { out_.fail(opcode_at_, message); }

    std::string_view take(std::uint64_t size) {
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

    void push(std::uint32_t value) {
        check_room(stack_.size());
        stack_.push_back(value);
    }
    std::uint32_t add(Node node) {
        check_room(out_.nodes_.size());
        node.byte = static_cast<std::uint32_t>(opcode_at_);
        out_.nodes_.push_back(node);
        return static_cast<std::uint32_t>(out_.nodes_.size() - 1);
    }
    void push_integer(Type type, std::int64_t value) {
        Node node;
        node.type = type;
        node.integer = value;
        push(add(node));
    }
    std::uint32_t add_extent(Type type, Document::Extent extent) {
        Node node;
        node.type = type;
        node.extent = extent;
        return add(node);
    }
    std::uint32_t add_text(Type type, std::uint64_t size) {
        const auto begin = static_cast<std::uint32_t>(next_);
        take(size);
        return add_extent(type, {.begin = begin, .size = static_cast<std::uint32_t>(size)});
    }
    void push_text(Type type, std::uint64_t size) { push(add_text(type, size)); }
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

    // What holds `size` values has slots for bit_ceil(size), so that adding one by one copies each only twice
    // on average.
    static std::size_t room(std::size_t size) { return size == 0 ? 0 : std::bit_ceil(size); }

    Document::Extent store(Indices values, std::size_t reserved) {
        check_room(out_.slots_.size() + reserved);
        const Document::Extent extent{.begin = static_cast<std::uint32_t>(out_.slots_.size()),
                                      .size = static_cast<std::uint32_t>(values.size())};
        out_.slots_.insert(out_.slots_.end(), values.begin(), values.end());
        out_.slots_.resize(extent.begin + reserved, Document::absent);
        return extent;
    }
    std::uint32_t add_holder(Type type, Indices values) {
        const bool grows = type == Type::list || type == Type::dict;
        return add_extent(type, store(values, grows ? room(values.size()) : values.size()));
    }
    void push_holder(Type type, Indices values) { push(add_holder(type, values)); }

    void append(std::uint32_t holder, Indices more) {
        const Document::Extent old = out_.nodes_[holder].extent;
        const std::size_t size = old.size + more.size();
        Document::Extent grown = old;
        if (size > room(old.size)) {
            const auto begin = out_.slots_.begin() + static_cast<std::ptrdiff_t>(old.begin);
            moved_.assign(begin, begin + static_cast<std::ptrdiff_t>(old.size));
            grown = store(moved_, room(size));
        }
        const std::size_t end = std::size_t{grown.begin} + old.size;
        std::ranges::copy(more, out_.slots_.begin() + static_cast<std::ptrdiff_t>(end));
        grown.size = static_cast<std::uint32_t>(size);
        out_.nodes_[holder].extent = grown;
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
    Indices pop_many(std::size_t count) {
        popped_.resize(count);
        while (count > 0) {
            popped_[--count] = pop();
        }
        return popped_;
    }
    Indices pop_to_mark() {
        if (marks_.empty()) {
            fail("takes values back to a mark where there is none");
        }
        const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        popped_.assign(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        marks_.pop_back();
        return popped_;
    }
    std::uint32_t top() {
        const std::uint32_t value = pop();
        push(value);
        return value;
    }

    /// Where the slot of the call on top of the stack is.
    std::uint32_t& slot_of_call(std::uint32_t call, Document::CallSlot slot) {
        return out_.slots_[out_.nodes_[call].extent.begin + slot];
    }

    void extend(Type type, Indices more) {
        std::uint32_t holder = top();
        if (type == Type::dict && more.size() % 2 != 0) {
            fail("a dict with a key without a value");
        }
        if (out_.nodes_[holder].type == Type::call) {  // an OrderedDict, say
            if (slot_of_call(holder, Document::contents) == Document::absent) {
                const std::uint32_t empty = add_holder(type, {});
                slot_of_call(holder, Document::contents) = empty;
            }
            holder = slot_of_call(holder, Document::contents);
        }
        if (out_.nodes_[holder].type != type) {
            fail("adds to " + std::string(name_of(out_.nodes_[holder].type)) + " as if it were " +
                 std::string(name_of(type)));
        }
        append(holder, more);
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
        if (protocol < 2 || protocol > 5) {
            fail("protocol " + std::to_string(protocol) + "; expected 2 to 5");
        }
    }

    /// Text up to the end of a line, which it passes.
    std::uint32_t add_line() {
        const std::size_t end = out_.bytes_.find('\n', next_);
        if (end == std::string::npos) {
            fail("the pickle is cut off");
        }
        const std::uint32_t line = add_text(Type::string, end - next_);
        ++next_;
        return line;
    }
    void push_name(std::uint32_t module, std::uint32_t last) {
        for (const std::uint32_t part : {module, last}) {
            if (out_.nodes_[part].type != Type::string) {
                fail("a name made of " + std::string(name_of(out_.nodes_[part].type)));
            }
            if (out_.nodes_[part].extent.size > Document::longest_name) {
                fail("a name of more than " + std::to_string(Document::longest_name) + " bytes");
            }
        }
        push_holder(Type::name, std::array{module, last});
    }
    void push_call() {
        const std::uint32_t arguments = pop();
        const std::uint32_t callee = pop();
        if (out_.nodes_[arguments].type != Type::tuple) {
            fail("a call with " + std::string(name_of(out_.nodes_[arguments].type)) +
                 " in place of a tuple of arguments");
        }
        push_holder(Type::call, std::array{callee, arguments, Document::absent, Document::absent});
    }
    void set_state() {
        const std::uint32_t state = pop();
        const std::uint32_t object = top();
        if (out_.nodes_[object].type != Type::call) {
            fail("sets the state of " + std::string(name_of(out_.nodes_[object].type)));
        }
        slot_of_call(object, Document::state) = state;
    }

    /// One opcode; false after the last.
    bool step() {
        opcode_at_ = next_;
        const auto opcode = static_cast<unsigned char>(take(1).front());
        return opcode != '.' && (simple_value(opcode) || container(opcode) || memo(opcode) ||
                                 (content_ == Content::calls && call(opcode)) || refuse(opcode));
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
                push_text(Type::string, little_endian(1));
                return true;
            case 'X':
                push_text(Type::string, little_endian(4));
                return true;
            case 0x8d:
                push_text(Type::string, little_endian(8));
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
                push_holder(Type::list, {});
                return true;
            case 'l':
                push_holder(Type::list, pop_to_mark());
                return true;
            case 'a':
                extend(Type::list, pop_many(1));
                return true;
            case 'e':
                extend(Type::list, pop_to_mark());
                return true;
            case '}':
                push_holder(Type::dict, {});
                return true;
            case 'd': {
                const Indices entries = pop_to_mark();
                push_holder(Type::dict, {});
                extend(Type::dict, entries);
                return true;
            }
            case 's':
                extend(Type::dict, pop_many(2));
                return true;
            case 'u':
                extend(Type::dict, pop_to_mark());
                return true;
            case ')':
                push_holder(Type::tuple, {});
                return true;
            case 't':
                push_holder(Type::tuple, pop_to_mark());
                return true;
            case 0x85:
            case 0x86:
            case 0x87:
                push_holder(Type::tuple, pop_many(opcode - 0x84U));
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

    bool call(unsigned char opcode) {
        switch (opcode) {
            case 'c': {
                const std::uint32_t module = add_line();
                push_name(module, add_line());
                return true;
            }
            case 0x93: {
                const std::uint32_t last = pop();
                push_name(pop(), last);
                return true;
            }
            case 'R':
            case 0x81:
                push_call();
                return true;
            case 'b':
                set_state();
                return true;
            case 'Q':
                push_holder(Type::persistent, pop_many(1));
                return true;
            case 'C':
                push_text(Type::bytes, little_endian(1));
                return true;
            case 'B':
                push_text(Type::bytes, little_endian(4));
                return true;
            case 0x8e:
                push_text(Type::bytes, little_endian(8));
                return true;
            default:
                return false;
        }
    }

    [[noreturn]] bool refuse(unsigned char opcode) const {
        fail("opcode " + std::to_string(opcode) +
             (content_ == Content::calls ? ", which no checkpoint needs"
                                         : "; expected plain data: no classes, no calls, no byte strings"));
    }

    Document& out_;
    Content content_;
    std::size_t next_ = 0;
    std::size_t opcode_at_ = 0;
    std::vector<std::uint32_t> stack_;
    std::vector<std::size_t> marks_;
    std::vector<std::uint32_t> memo_;
    std::vector<std::uint32_t> popped_;  // what pop_many() and pop_to_mark() return
    std::vector<std::uint32_t> moved_;
};

Document::Document(std::string bytes, std::string file, Content content)
    : file_(std::move(file)), bytes_(std::move(bytes)) {
    Machine(*this, content).run();
}

}  // namespace fsdplan::pickle
