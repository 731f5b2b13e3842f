#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

#include "base/json.hpp"
#include "base/utf8.hpp"

namespace fsdplan::json {

// One pass over the document's copy of the text. Strings stay where they are: unescaping only ever shortens
// them. An index file or a checkpoint header has 10 MB and must not cost 100 ms, which is what a general
// parser with one callback a value takes.
class Parser {
public:
    explicit Parser(Document& document) : document_(document), text_(document.characters_) {
        constexpr std::size_t characters_per_value = 16;
        document_.nodes_.reserve(text_.size() / characters_per_value + 2);
        document_.nodes_.emplace_back();  // index 0 means "none"
    }

    void parse() {
        skip_space();
        value();
        while (!open_.empty()) {
            skip_space();
            const bool object = document_.nodes_[open_.back().node].type == Type::object;
            if (peek() == (object ? '}' : ']')) {
                close(object);
                continue;
            }
            if (open_.back().last_child != 0) {
                expect(',', object ? "',' or '}'" : "',' or ']'");
                skip_space();
            }
            if (object) {
                expect('"', "a key in double quotes");
                key_ = string();
                skip_space();
                expect(':', "':'");
                skip_space();
            }
            value();
        }
        skip_space();
        if (at_ != text_.size()) {
            fail("the end of the text");
        }
    }

private:
    struct Open {
        std::uint32_t node = 0;
        std::uint32_t last_child = 0;
    };

    [[noreturn]] void fail(std::string_view expected) const {
        const std::string found =
            at_ >= text_.size() ? "the end of the text" : quote(text_.substr(at_, most_shown));
        throw Error(ErrorKind::input, document_.file_,
                    "not valid JSON at byte " + std::to_string(at_ + 1) + ": expected " +
                        std::string(expected) + ", found " + found);
    }

    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

    void expect(char c, std::string_view what) {
        if (at_ >= text_.size() || text_[at_] != c) {
            fail(what);
        }
        ++at_;
    }

    void skip_space() {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
            ++at_;
        }
    }

    void value() {
        switch (peek()) {
            case '{':
                return open(Type::object);
            case '[':
                return open(Type::array);
            case '"': {
                ++at_;
                const Document::Text text = string();
                document_.nodes_[add(Type::string)].text = text;
                return;
            }
            case 't':
                literal("true");
                document_.nodes_[add(Type::boolean)].integer = 1;
                return;
            case 'f':
                literal("false");
                document_.nodes_[add(Type::boolean)].integer = 0;
                return;
            case 'n':
                literal("null");
                add(Type::null);
                return;
            default:
                return number();
        }
    }

    void literal(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) {
            fail("a value");
        }
        at_ += word.size();
    }

    std::size_t digits() {
        const std::size_t begin = at_;
        while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
            ++at_;
        }
        return at_ - begin;
    }

    void number() {
        const std::size_t begin = at_;
        at_ += peek() == '-' ? 1U : 0U;
        const bool leading_zero = peek() == '0';
        const std::size_t whole = digits();
        if (whole == 0 || (leading_zero && whole > 1)) {
            at_ = begin;
            fail("a value");
        }
        bool integral = true;
        if (peek() == '.') {
            ++at_;
            integral = false;
            if (digits() == 0) {
                fail("a digit");
            }
        }
        if (peek() == 'e' || peek() == 'E') {
            ++at_;
            integral = false;
            at_ += peek() == '+' || peek() == '-' ? 1U : 0U;
            if (digits() == 0) {
                fail("a digit");
            }
        }
        store_number(text_.substr(begin, at_ - begin), integral);
    }

    // An integer of more than 63 bits is kept as a real number: no integer() accepts it.
    void store_number(std::string_view spelling, bool integral) {
        const char* const end = spelling.data() + spelling.size();
        std::int64_t integer = 0;
        if (integral && std::from_chars(spelling.data(), end, integer).ec == std::errc()) {
            document_.nodes_[add(Type::integer)].integer = integer;
            return;
        }
        double real = 0.0;
        if (std::from_chars(spelling.data(), end, real).ec != std::errc()) {
            at_ -= spelling.size();
            fail("a number that a double can hold");
        }
        document_.nodes_[add(Type::real)].real = real;
    }

    // After the opening quote; unescapes in place.
    Document::Text string() {
        const std::size_t begin = at_;
        std::size_t out = at_;
        while (true) {
            const std::size_t run = at_;
            skip_plain();
            keep(run, out);
            const char c = peek();
            if (c == '"') {
                ++at_;
                return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(out - begin)};
            }
            if (c != '\\') {
                fail(at_ < text_.size() && static_cast<unsigned char>(c) < first_printable
                         ? "an escaped control character"
                         : "valid UTF-8 and a closing quote");
            }
            out = escape(out);
        }
    }

    void skip_plain() {
        const char* const characters = document_.characters_.c_str();  // ends in a NUL, which is not plain
        while (true) {
            while (is_plain(characters[at_])) {
                ++at_;
            }
            const std::size_t length = utf8_sequence(text_.substr(at_));
            if (length < 2) {
                return;
            }
            at_ += length;
        }
    }

    // Moves what was read since `run` down to `out`, which is further left once something was unescaped.
    void keep(std::size_t run, std::size_t& out) {
        if (out != run) {
            std::copy(text_.begin() + static_cast<std::ptrdiff_t>(run),
                      text_.begin() + static_cast<std::ptrdiff_t>(at_),
                      document_.characters_.begin() + static_cast<std::ptrdiff_t>(out));
        }
        out += at_ - run;
    }

    static bool is_plain(char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte >= first_printable && byte < first_non_ascii && c != '"' && c != '\\';
    }

    std::size_t escape(std::size_t out) {
        ++at_;
        constexpr std::string_view names = "\"\\/bfnrt";
        constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
        const char name = peek();
        if (name == 'u') {
            return unicode_escape(out);
        }
        const std::size_t which = at_ < text_.size() ? names.find(name) : std::string_view::npos;
        if (which == std::string_view::npos) {
            fail("an escape that JSON has");
        }
        ++at_;
        document_.characters_[out] = meanings[which];
        return out + 1;
    }

    std::size_t unicode_escape(std::size_t out) {
        std::uint32_t code = hex4();
        const bool high_surrogate = code >= 0xD800U && code <= 0xDBFFU;
        if (high_surrogate && peek() == '\\') {
            ++at_;
            const std::uint32_t low = peek() == 'u' ? hex4() : 0U;
            code = low >= 0xDC00U && low <= 0xDFFFU ? 0x10000U + ((code - 0xD800U) << 10U) + (low - 0xDC00U)
                                                    : code;
        }
        if (code >= 0xD800U && code <= 0xDFFFU) {
            fail("a surrogate pair");
        }
        // At most as long as its escape: 6 characters for up to 3 bytes, 12 for 4.
        const auto put = [&](std::uint32_t byte) { document_.characters_[out++] = static_cast<char>(byte); };
        if (code < 0x80U) {
            put(code);
        } else if (code < 0x800U) {
            put(0xC0U | (code >> 6U));
            put(0x80U | (code & 0x3FU));
        } else if (code < 0x10000U) {
            put(0xE0U | (code >> 12U));
            put(0x80U | ((code >> 6U) & 0x3FU));
            put(0x80U | (code & 0x3FU));
        } else {
            put(0xF0U | (code >> 18U));
            put(0x80U | ((code >> 12U) & 0x3FU));
            put(0x80U | ((code >> 6U) & 0x3FU));
            put(0x80U | (code & 0x3FU));
        }
        return out;
    }

    // From the 'u' on.
    std::uint32_t hex4() {
        ++at_;
        constexpr std::size_t width = 4;
        constexpr int base = 16;
        std::uint32_t code = 0;
        const std::string_view spelling = text_.substr(std::min(at_, text_.size()), width);
        const auto [end, error] =
            std::from_chars(spelling.data(), spelling.data() + spelling.size(), code, base);
        if (spelling.size() != width || error != std::errc() || end != spelling.data() + width) {
            fail("four hexadecimal digits");
        }
        at_ += width;
        return code;
    }

    std::uint32_t add(Type type) {
        if (document_.nodes_.size() > Document::most_values) {
            throw Error(ErrorKind::input, document_.file_,
                        "more than " + std::to_string(Document::most_values) + " values");
        }
        const auto index = static_cast<std::uint32_t>(document_.nodes_.size());
        Document::Node& node = document_.nodes_.emplace_back();
        node.type = type;
        if (!open_.empty()) {
            Open& parent = open_.back();
            Document::Node& above = document_.nodes_[parent.node];
            node.parent = parent.node;
            node.key = above.type == Type::object ? key_ : Document::Text{};
            (parent.last_child == 0 ? above.first : document_.nodes_[parent.last_child].next) = index;
            ++above.count;
            parent.last_child = index;
        }
        return index;
    }

    void open(Type type) {
        if (open_.size() == static_cast<std::size_t>(Document::deepest_nesting)) {
            throw Error(ErrorKind::input, document_.file_,
                        "nested deeper than " + std::to_string(Document::deepest_nesting) + " levels");
        }
        ++at_;
        const std::uint32_t node = add(type);
        open_.push_back({.node = node, .last_child = 0});
    }

    void close(bool object) {
        ++at_;
        if (object) {
            refuse_duplicates(open_.back().node);
        }
        open_.pop_back();
    }

    void refuse_duplicates(std::uint32_t object) {
        constexpr std::uint32_t few = 8;
        const std::vector<Document::Node>& nodes = document_.nodes_;
        if (nodes[object].count > few) {
            return refuse_duplicates_among_many(object);
        }
        for (std::uint32_t i = nodes[object].first; i != 0; i = nodes[i].next) {
            for (std::uint32_t k = nodes[object].first; k != i; k = nodes[k].next) {
                if (document_.view(nodes[i].key) == document_.view(nodes[k].key)) {
                    refuse_key(i);
                }
            }
        }
    }

    // Open addressing over node indices; sorting the keys of an index file takes five times as long.
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

    static constexpr std::size_t most_shown = 12;
    static constexpr unsigned char first_printable = 0x20;
    static constexpr unsigned char first_non_ascii = 0x80;

    Document& document_;
    std::string_view text_;  // the document's characters, which keep their place
    std::size_t at_ = 0;
    Document::Text key_;
    std::vector<Open> open_;
    std::vector<std::uint32_t> seen_;
};

Document::Document(std::string_view text, std::string file) : file_(std::move(file)) {
    constexpr std::size_t largest_text = std::size_t{1} << 31U;  // offsets are 32 bits wide
    if (text.size() > largest_text) {
        throw Error(ErrorKind::input, file_, "more than 2 GiB of JSON");
    }
    if (text.starts_with("\xef\xbb\xbf")) {
        throw Error(ErrorKind::input, file_, "begins with a byte order mark, which is not JSON");
    }
    characters_ = text;
    Parser(*this).parse();
}

}  // namespace fsdplan::json
