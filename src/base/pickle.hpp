#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"

// Reads Python pickles of protocols 2 to 5 without running anything. Plain data are dicts, lists, tuples,
// strings, numbers, bools and None. Where calls are accepted, a class or function is its name, a call is its
// name and arguments, and the state that Python would set on the result stays beside it; other opcodes than
// these are an Error.
namespace fsdplan::pickle {

enum class Type : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    string,
    list,
    tuple,
    dict,
    bytes,
    name,       ///< of a class or function: "torch.float32"
    call,       ///< also a new object of a class
    persistent  ///< what the pickler's owner keeps elsewhere: torch's storages
};

/// "a list", for messages.
std::string_view name_of(Type type);

enum class Content : std::uint8_t { plain_data, calls };

class Value;

/// Values refer to their document, so it outlives them. What the memo shares is one value; a list may contain
/// itself, so who walks one counts how deep it is.
class Document {
public:
    // Memory grows with the file's size alone, about 24 bytes for each of its bytes at worst.
    static constexpr std::size_t most_values = std::size_t{1} << 28U;
    static constexpr std::size_t deepest_nesting = 64;
    // What the memo shares is looked at wherever it is used: these keep that cheap.
    static constexpr std::size_t longest_name = 1024;
    static constexpr std::size_t most_attributes = 256;

    /// Throws Error(input) that names `file` (as shown to the user) and the byte.
    Document(std::string bytes, std::string file, Content content = Content::plain_data);

    Document(const Document&) = delete;
    Document& operator=(const Document&) = delete;
    Document(Document&&) = delete;
    Document& operator=(Document&&) = delete;
    ~Document() = default;

    Value root() const;
    const std::string& file() const { return file_; }
    int protocol() const;
    /// How many values the pickle has, a shared one once.
    std::size_t size() const { return nodes_.size() - 1; }
    /// Every value of this type, in the order of the file.
    std::vector<Value> all(Type type) const;

    /// Throws Error(input): "file at byte n: message".
    [[noreturn]] void fail(std::size_t byte, const std::string& message) const;

private:
    friend class Value;
    friend class Machine;

    struct Extent {
        std::uint32_t begin;
        std::uint32_t size;
    };
    struct Node {
        union {
            std::int64_t integer = 0;  // also the truth value
            double real;
            Extent extent;  // of a string in bytes_, of anything that holds values in slots_
        };
        std::uint32_t byte = 0;  // where its opcode is
        Type type = Type::none;
    };
    // What the slots of a call hold. State and contents are `absent` unless the pickle sets them.
    enum CallSlot : std::uint32_t { callee, arguments, state, contents, call_slots };
    static constexpr std::uint32_t absent = 0;  // this node is nobody's value

    std::string file_;
    std::string bytes_;
    std::vector<Node> nodes_;
    std::vector<std::uint32_t> slots_;  // values of lists and tuples; of dicts key, value, key, value
    std::uint32_t root_ = absent;
};

/// One value of a document; cheap to copy.
class Value {
public:
    Type type() const { return node().type; }

    // Each of these fails (see fail()) when the value is of another type or out of range.
    bool boolean() const;
    std::int64_t integer(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                         std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
    double number() const;  ///< integer or real
    std::string_view string() const;
    /// Elements of a list or tuple.
    std::vector<Value> elements() const;

    /// Elements of a list or tuple, or entries of a dict.
    std::size_t size() const;
    Value element(std::size_t i) const;  ///< of a list or tuple; fails when it is shorter
    Value key(std::size_t i) const;      ///< of a dict's entry i < size()
    Value value(std::size_t i) const;

    /// What a dict holds under this name, or nothing; fails when this is no dict.
    std::optional<Value> find(std::string_view key) const;
    /// The same; fails when there is none.
    Value at(std::string_view key) const;

    /// A name in full, with dots; of a call the name that is called, empty when that is not plain.
    std::string name() const;
    /// Whether this is a name, or a call of it.
    bool is_name(std::string_view name) const;
    bool calls(std::string_view name) const;
    /// What a call calls: a name, or the result of another call.
    Value callee() const;
    /// Arguments of a call, a tuple; what identifies a persistent value.
    Value arguments() const;
    /// What Python would set on the object that a call makes, or nothing.
    std::optional<Value> state() const;
    /// Entries or elements that the pickle puts into that object, as a dict or list, or nothing.
    std::optional<Value> contents() const;
    /// A named part of the state, whether that is a dict or (as of classes with slots) a pair of None and
    /// one.
    /// Fails for a state of more than Document::most_attributes parts.
    std::optional<Value> attribute(std::string_view name) const;
    /// The same; fails when there is none.
    Value attribute_at(std::string_view name) const;

    std::size_t byte() const { return node().byte; }
    /// Throws Error(input): "file at byte n: expected <expected>, found <type>".
    [[noreturn]] void fail(std::string_view expected) const;
    /// Throws Error(input): "file at byte n: message".
    [[noreturn]] void refuse(const std::string& message) const;

private:
    friend class Document;
    Value(const Document* document, std::uint32_t index) : document_(document), index_(index) {}
    const Document::Node& node() const { return document_->nodes_[index_]; }
    std::span<const std::uint32_t> slots() const {
        return std::span(document_->slots_).subspan(node().extent.begin, node().extent.size);
    }
    Value at_slot(std::size_t i) const { return {document_, slots()[i]}; }
    std::optional<Value> call_slot(Document::CallSlot slot) const;
    std::string_view text() const;
    bool spells(std::string_view name) const;

    const Document* document_;
    std::uint32_t index_;
};

}  // namespace fsdplan::pickle
