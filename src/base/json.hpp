#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"

// The one JSON reader. Parsing is RapidJSON's (nlohmann/json takes five times as long over a checkpoint's
// index); what a parser takes without a word (duplicate keys, a byte order mark, numbers that do not fit,
// bottomless nesting) is an Error here, and every value knows its pointer.
namespace fsdplan::json {

enum class Type : std::uint8_t { null, boolean, integer, real, string, array, object };

class Value;

/// A parsed text: flat arrays, members in the order of the file. Values refer to it, so it outlives them.
class Document {
public:
    static constexpr int deepest_nesting = 64;
    static constexpr std::size_t most_values = std::size_t{1} << 25U;

    /// Throws Error(input) that names `file` (as shown to the user) and the line or pointer.
    Document(std::string_view text, std::string file);

    Document(const Document&) = delete;
    Document& operator=(const Document&) = delete;
    Document(Document&&) = delete;
    Document& operator=(Document&&) = delete;
    ~Document() = default;

    Value root() const;
    const std::string& file() const { return file_; }

private:
    friend class Value;
    friend class Builder;

    struct Text {
        std::uint32_t offset = 0;
        std::uint32_t size = 0;
    };
    struct Node {
        Type type = Type::null;
        std::uint32_t parent = 0;
        std::uint32_t next = 0;   // sibling; 0 = none
        std::uint32_t first = 0;  // first child of an array or object; 0 = none
        std::uint32_t count = 0;  // children
        Text key;
        Text text;  // of a string
        union {
            std::int64_t integer = 0;  // also the truth value
            double real;
        };
    };

    std::string_view view(Text text) const {
        return std::string_view(characters_).substr(text.offset, text.size);
    }

    std::string file_;
    std::string characters_;
    std::vector<Node> nodes_;
};

/// One value of a document; cheap to copy.
class Value {
public:
    Type type() const { return node().type; }
    bool is_null() const { return type() == Type::null; }
    bool is_string() const { return type() == Type::string; }
    bool is_array() const { return type() == Type::array; }
    bool is_object() const { return type() == Type::object; }
    bool is_integer() const { return type() == Type::integer; }
    bool is_boolean() const { return type() == Type::boolean; }

    // Each of these fails (see fail()) when the value is of another type or out of range.
    bool boolean() const;
    std::int64_t integer(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                         std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
    double number() const;  ///< integer or real
    std::string_view string() const;
    std::vector<std::string> strings() const;  ///< an array of strings

    /// Number of elements or members.
    std::size_t size() const { return node().count; }
    /// Name of this member of an object; empty for elements and the root.
    std::string_view key() const { return document_->view(node().key); }

    /// Member of an object, or nothing; fails when this is no object.
    std::optional<Value> find(std::string_view key) const;
    /// The same, but nothing for a null.
    std::optional<Value> given(std::string_view key) const;
    /// Member of an object; fails when it is missing.
    Value at(std::string_view key) const;
    /// Fails for a member with another name, with the nearest allowed one.
    void allow_only(std::initializer_list<std::string_view> keys) const;

    class Iterator {
    public:
        Value operator*() const { return {document_, index_}; }
        Iterator& operator++() {
            index_ = document_->nodes_[index_].next;
            return *this;
        }
        bool operator==(const Iterator& other) const { return index_ == other.index_; }

    private:
        friend class Value;
        friend class Children;
        Iterator(const Document* document, std::uint32_t index) : document_(document), index_(index) {}
        const Document* document_;
        std::uint32_t index_;
    };
    class Children {
    public:
        Iterator begin() const { return {document_, first_}; }
        Iterator end() const { return {document_, 0}; }

    private:
        friend class Value;
        Children(const Document* document, std::uint32_t first) : document_(document), first_(first) {}
        const Document* document_;
        std::uint32_t first_;
    };
    Children elements() const;  ///< fails when this is no array
    Children members() const;   ///< fails when this is no object

    /// "file#/json/pointer"
    std::string where() const;
    /// The value as it would be shown in a message, shortened.
    std::string shown() const;
    /// Throws Error(input): "file#/pointer: expected <expected>, found <shown>".
    [[noreturn]] void fail(std::string_view expected) const;

private:
    friend class Document;
    friend class Iterator;
    Value(const Document* document, std::uint32_t index) : document_(document), index_(index) {}
    const Document::Node& node() const { return document_->nodes_[index_]; }

    const Document* document_;
    std::uint32_t index_;
};

/// Text as a JSON string literal with quotes; control characters and bytes that are no UTF-8 are escaped.
std::string quote(std::string_view text);

}  // namespace fsdplan::json
