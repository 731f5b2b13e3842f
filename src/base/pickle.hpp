#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"

// Reads Python pickles of plain data: dicts, lists, tuples, strings, numbers, bools and None, protocols 2
// to 4. Nothing in a pickle is run: an opcode that would name a class or call something is an Error.
namespace fsdplan::pickle {

enum class Type : std::uint8_t { none, boolean, integer, real, string, list, tuple, dict };

class Value;

/// Values refer to their document, so it outlives them. What the memo shares is one value; a list may contain
/// itself.
class Document {
public:
    static constexpr std::size_t most_values = std::size_t{1} << 24U;
    static constexpr std::size_t deepest_nesting = 1000;

    /// Throws Error(input) that names `file` (as shown to the user) and the byte.
    Document(std::string bytes, std::string file);

    Document(const Document&) = delete;
    Document& operator=(const Document&) = delete;
    Document(Document&&) = delete;
    Document& operator=(Document&&) = delete;
    ~Document() = default;

    Value root() const;
    const std::string& file() const { return file_; }

private:
    friend class Value;
    friend class Machine;

    struct Node {
        Type type = Type::none;
        std::size_t byte = 0;  // where its opcode is
        union {
            std::int64_t integer = 0;  // also the truth value, the position of a string or of `items`
            double real;
        };
        std::size_t size = 0;  // of a string
    };

    std::string file_;
    std::string bytes_;
    std::vector<Node> nodes_;
    std::vector<std::vector<std::uint32_t>> items_;  // of lists and tuples; of dicts key, value, key, value
    std::uint32_t root_ = 0;
};

/// One value of a document; cheap to copy.
class Value {
public:
    Type type() const { return node().type; }

    // Each of these fails (see fail()) when the value is of another type.
    bool boolean() const;
    std::int64_t integer() const;
    double number() const;  ///< integer or real
    std::string_view string() const;
    /// Elements of a list or tuple.
    std::vector<Value> elements() const;

    /// What a dict holds under this name, or nothing; fails when this is no dict.
    std::optional<Value> find(std::string_view key) const;
    /// The same; fails when there is none.
    Value at(std::string_view key) const;

    /// Throws Error(input): "file at byte n: expected <expected>, found <type>".
    [[noreturn]] void fail(std::string_view expected) const;

private:
    friend class Document;
    Value(const Document* document, std::uint32_t index) : document_(document), index_(index) {}
    const Document::Node& node() const { return document_->nodes_[index_]; }
    const std::vector<std::uint32_t>& items() const {
        return document_->items_[static_cast<std::size_t>(node().integer)];
    }

    const Document* document_;
    std::uint32_t index_;
};

}  // namespace fsdplan::pickle
