#include "base/json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace fsdplan::json {

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
