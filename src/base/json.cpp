#include "base/json.hpp"

#include <rapidjson/error/en.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

namespace fsdplan::json {

// Fills a Document from the parser's events.
class Builder {
public:
    explicit Builder(Document& document) : document_(document) {
        constexpr std::size_t characters_per_value = 16;
        document_.nodes_.reserve(document_.characters_.size() / characters_per_value + 2);
        document_.nodes_.emplace_back();  // index 0 means "none"
    }

    // The names are those that rapidjson::Reader calls.
    // NOLINTBEGIN(readability-identifier-naming)
    bool Null() {
        add(Type::null);
        return true;
    }
    bool Bool(bool value) {
        document_.nodes_[add(Type::boolean)].integer = value ? 1 : 0;
        return true;
    }
    bool Int(int /*value*/) { return false; }  // numbers come as RawNumber
    bool Uint(unsigned /*value*/) { return false; }
    bool Int64(std::int64_t /*value*/) { return false; }
    bool Uint64(std::uint64_t /*value*/) { return false; }
    bool Double(double /*value*/) { return false; }
    // RapidJSON 1.1 has found the number well formed; its own conversion counts the leading zeros of a zero.
    bool RawNumber(const char* text, std::size_t size, bool /*copy*/) {
        const char* const end = text + size;
        Document::Node& node = document_.nodes_[add(Type::integer)];
        // An integer above 2^63 - 1 is none that anything here can use.
        if (const auto whole = std::from_chars(text, end, node.integer);
            whole.ec == std::errc() && whole.ptr == end) {
            return true;
        }
        node.type = Type::real;
        if (std::from_chars(text, end, node.real).ec == std::errc()) {
            return true;
        }
        long double beyond = 0;  // has the range to tell too large from too small
        std::from_chars(text, end, beyond);
        node.real = 0;
        return std::abs(beyond) < 1;
    }
    bool String(const char* text, std::size_t size, bool /*copy*/) {
        const std::uint32_t index = add(Type::string);
        document_.nodes_[index].text = place({text, size});
        return true;
    }
    bool StartObject() { return open(Type::object); }
    bool StartArray() { return open(Type::array); }
    bool Key(const char* text, std::size_t size, bool /*copy*/) {
        key_ = place({text, size});
        return true;
    }
    bool EndObject(std::size_t /*members*/) {
        refuse_duplicates(open_.back().node);
        open_.pop_back();
        return true;
    }
    bool EndArray(std::size_t /*elements*/) {
        open_.pop_back();
        return true;
    }
    // NOLINTEND(readability-identifier-naming)

private:
    struct Open {
        std::uint32_t node = 0;
        std::uint32_t last_child = 0;
    };

    // Strings are unescaped in place, so their text lies in the document's characters already.
    Document::Text place(std::string_view text) const {
        refuse_half_pairs(text);
        return {static_cast<std::uint32_t>(text.data() - document_.characters_.data()),
                static_cast<std::uint32_t>(text.size())};
    }

    // RapidJSON checks the encoding of what is written out, but makes three bytes of a lone "\udc00".
    void refuse_half_pairs(std::string_view text) const {
        for (std::size_t i = text.find('\xed'); i != std::string_view::npos; i = text.find('\xed', i + 1)) {
            const bool surrogate = i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) >= 0xa0U;
            if (surrogate) {
                throw Error(ErrorKind::input, document_.file_,
                            "not valid JSON: half of a surrogate pair in " + quote(text));
            }
        }
    }

    std::uint32_t add(Type type) {
        if (document_.nodes_.size() > Document::most_values) {
            throw Error(ErrorKind::input, document_.file_,
                        "more than " + std::to_string(Document::most_values) + " values");
        }
        const auto index = static_cast<std::uint32_t>(document_.nodes_.size());
        Document::Node node;
        node.type = type;
        if (!open_.empty()) {
            Open& parent = open_.back();
            node.parent = parent.node;
            if (document_.nodes_[parent.node].type == Type::object) {
                node.key = key_;
            }
            (parent.last_child == 0 ? document_.nodes_[parent.node].first
                                    : document_.nodes_[parent.last_child].next) = index;
            ++document_.nodes_[parent.node].count;
            parent.last_child = index;
        }
        document_.nodes_.push_back(node);
        return index;
    }

    bool open(Type type) {
        if (open_.size() == static_cast<std::size_t>(Document::deepest_nesting)) {
            throw Error(ErrorKind::input, document_.file_,
                        "nested deeper than " + std::to_string(Document::deepest_nesting) + " levels");
        }
        open_.push_back({.node = add(type), .last_child = 0});
        return true;
    }

    void refuse_duplicates(std::uint32_t object) {
        constexpr std::uint32_t few = 8;
        const std::vector<Document::Node>& nodes = document_.nodes_;
        if (nodes[object].count > few) {
            refuse_duplicates_among_many(object);
            return;
        }
        for (std::uint32_t i = nodes[object].first; i != 0; i = nodes[i].next) {
            for (std::uint32_t k = nodes[object].first; k != i; k = nodes[k].next) {
                if (document_.view(nodes[i].key) == document_.view(nodes[k].key)) {
                    refuse_key(i);
                }
            }
        }
    }

    // Open addressing over node indices; sorting the keys of a checkpoint's index takes five times as long.
    void refuse_duplicates_among_many(std::uint32_t object) {
        const std::vector<Document::Node>& nodes = document_.nodes_;
        std::size_t size = 1;
        while (size < std::size_t{2} * nodes[object].count) {
            size *= 2;
        }
        seen_.assign(size, 0);
        for (std::uint32_t i = nodes[object].first; i != 0; i = nodes[i].next) {
            const std::string_view key = document_.view(nodes[i].key);
            std::size_t slot = std::hash<std::string_view>()(key) & (size - 1);
            while (seen_[slot] != 0) {
                if (document_.view(nodes[seen_[slot]].key) == key) {
                    refuse_key(i);
                }
                slot = (slot + 1) & (size - 1);
            }
            seen_[slot] = i;
        }
    }

    [[noreturn]] void refuse_key(std::uint32_t node) const {
        throw Error(
            ErrorKind::input, document_.file_,
            "the key " + quote(document_.view(document_.nodes_[node].key)) + " occurs twice in one object");
    }

    Document& document_;
    Document::Text key_;
    std::vector<Open> open_;
    std::vector<std::uint32_t> seen_;
};

namespace {

std::string_view type_name(Type type) {
    switch (type) {
        case Type::null:
            return "null";
        case Type::boolean:
            return "a truth value";
        case Type::integer:
            return "an integer";
        case Type::real:
            return "a number";
        case Type::string:
            return "a string";
        case Type::array:
            return "an array";
        case Type::object:
            return "an object";
    }
    return "";
}

}  // namespace

Document::Document(std::string_view text, std::string file) : file_(std::move(file)) {
    constexpr std::size_t largest_text = std::size_t{1} << 31U;  // offsets are 32 bits wide
    if (text.size() > largest_text) {
        throw Error(ErrorKind::input, file_, "more than 2 GiB of JSON");
    }
    if (text.starts_with("\xef\xbb\xbf")) {
        throw Error(ErrorKind::input, file_, "begins with a byte order mark, which is not JSON");
    }
    if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
        // RapidJSON would take it for the end of the text.
        throw Error(ErrorKind::input, file_,
                    "not valid JSON at byte " + std::to_string(nul) + ": a zero byte");
    }
    // RapidJSON reads to the end of a multi-byte character, also of one that the text cuts off.
    constexpr std::size_t longest_character = 4;
    characters_.reserve(text.size() + longest_character);
    characters_ = text;
    characters_.append(longest_character, '\0');
    Builder builder(*this);
    rapidjson::InsituStringStream stream(characters_.data());
    rapidjson::Reader reader;
    // Recursive, which is faster: the builder stops it at `deepest_nesting`.
    constexpr unsigned flags = rapidjson::kParseValidateEncodingFlag | rapidjson::kParseInsituFlag |
                               rapidjson::kParseNumbersAsStringsFlag;
    const rapidjson::ParseResult result = reader.Parse<flags>(stream, builder);
    if (result.IsError()) {
        // The builder stops the parser at nothing but a number out of range.
        const rapidjson::ParseErrorCode code = result.Code() == rapidjson::kParseErrorTermination
                                                   ? rapidjson::kParseErrorNumberTooBig
                                                   : result.Code();
        throw Error(ErrorKind::input, file_,
                    "not valid JSON at byte " + std::to_string(result.Offset()) + ": " +
                        rapidjson::GetParseError_En(code));
    }
}

Value Document::root() const {
    return {this, 1};
}

bool Value::boolean() const {
    if (type() != Type::boolean) {
        fail("true or false");
    }
    return node().integer != 0;
}

std::int64_t Value::integer(std::int64_t least, std::int64_t most) const {
    const bool in_range = type() == Type::integer && node().integer >= least && node().integer <= most;
    if (!in_range) {
        if (least == 0 && most >= largest_total) {
            fail("a non-negative integer");
        }
        if (least == std::numeric_limits<std::int64_t>::min() &&
            most == std::numeric_limits<std::int64_t>::max()) {
            fail("an integer");
        }
        fail("an integer from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return node().integer;
}

double Value::number() const {
    if (type() == Type::integer) {
        return static_cast<double>(node().integer);
    }
    if (type() != Type::real) {
        fail("a number");
    }
    return node().real;
}

std::string_view Value::string() const {
    if (type() != Type::string) {
        fail("a string");
    }
    return document_->view(node().text);
}

std::vector<std::string> Value::strings() const {
    std::vector<std::string> out;
    for (const Value value : elements()) {
        out.emplace_back(value.string());
    }
    return out;
}

std::optional<Value> Value::find(std::string_view key) const {
    for (const Value member : members()) {
        if (member.key() == key) {
            return member;
        }
    }
    return std::nullopt;
}

std::optional<Value> Value::given(std::string_view key) const {
    const std::optional<Value> found = find(key);
    return found && found->is_null() ? std::nullopt : found;
}

Value Value::at(std::string_view key) const {
    const std::optional<Value> found = find(key);
    if (!found) {
        throw Error(ErrorKind::input, where(), "the key " + quote(key) + " is missing");
    }
    return *found;
}

void Value::allow_only(std::initializer_list<std::string_view> keys) const {
    for (const Value member : members()) {
        if (std::ranges::find(keys, member.key()) == keys.end()) {
            const std::vector<std::string> known(keys.begin(), keys.end());
            throw Error(ErrorKind::input, where(),
                        "unknown key " + quote(member.key()) + did_you_mean(member.key(), known));
        }
    }
}

Value::Children Value::elements() const {
    if (!is_array()) {
        fail("an array");
    }
    return {document_, node().first};
}

Value::Children Value::members() const {
    if (!is_object()) {
        fail("an object");
    }
    return {document_, node().first};
}

std::string Value::where() const {
    std::vector<std::string> steps;
    for (std::uint32_t i = index_; document_->nodes_[i].parent != 0; i = document_->nodes_[i].parent) {
        const Document::Node& parent = document_->nodes_[document_->nodes_[i].parent];
        std::string step;
        if (parent.type == Type::object) {
            for (const char c : document_->view(document_->nodes_[i].key)) {
                step += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
            }
            step = quote(step);
            step = step.substr(1, step.size() - 2);
        } else {
            std::size_t position = 0;
            for (std::uint32_t k = parent.first; k != i; k = document_->nodes_[k].next) {
                ++position;
            }
            step = std::to_string(position);
        }
        steps.push_back(std::move(step));
    }
    std::string out = document_->file();
    if (!steps.empty()) {
        out += '#';
    }
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        out += '/' + *step;
    }
    return out;
}

std::string Value::shown() const {
    constexpr std::size_t longest = 40;
    switch (type()) {
        case Type::null:
            return "null";
        case Type::boolean:
            return node().integer != 0 ? "true" : "false";
        case Type::integer:
            return std::to_string(node().integer);
        case Type::real:
            return nlohmann::json(node().real).dump();
        case Type::string: {
            const std::string_view text = string();
            return text.size() <= longest ? quote(text) : quote(text.substr(0, longest)) + "…";
        }
        case Type::array:
        case Type::object:
            return std::string(type_name(type()));
    }
    return "";
}

void Value::fail(std::string_view expected) const {
    throw Error(ErrorKind::input, where(), "expected " + std::string(expected) + ", found " + shown());
}

std::string quote(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace fsdplan::json
