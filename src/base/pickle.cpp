#include "base/pickle.hpp"

#include <array>

namespace fsdplan::pickle {

std::string_view name_of(Type type) {
    constexpr std::array<std::string_view, 12> names{
        "None",     "a bool", "an integer", "a float",
        "a string", "a list", "a tuple",    "a dict",
        "bytes",    "a name", "a call",     "a reference to data outside of the pickle"};
    return names.at(static_cast<std::size_t>(type));
}

Value Document::root() const {
    return {this, root_};
}

int Document::protocol() const {
    return static_cast<unsigned char>(bytes_[1]);
}

std::vector<Value> Document::all(Type type) const {
    std::vector<Value> out;
    for (std::size_t i = absent + 1; i < nodes_.size(); ++i) {
        if (nodes_[i].type == type) {
            out.push_back(Value(this, static_cast<std::uint32_t>(i)));
        }
    }
    return out;
}

void Document::fail(std::size_t byte, const std::string& message) const {
    throw Error(ErrorKind::input, file_ + " at byte " + std::to_string(byte), message);
}

bool Value::boolean() const {
    if (type() != Type::boolean) {
        fail("a bool");
    }
    return node().integer != 0;
}

std::int64_t Value::integer(std::int64_t least, std::int64_t most) const {
    if (type() != Type::integer) {
        fail("an integer");
    }
    if (node().integer < least || node().integer > most) {
        refuse("expected an integer from " + std::to_string(least) + " to " + std::to_string(most) +
               ", found " + std::to_string(node().integer));
    }
    return node().integer;
}

double Value::number() const {
    if (type() != Type::integer && type() != Type::real) {
        fail("a number");
    }
    return type() == Type::real ? node().real : static_cast<double>(node().integer);
}

std::string_view Value::text() const {
    return std::string_view(document_->bytes_).substr(node().extent.begin, node().extent.size);
}

std::string_view Value::string() const {
    if (type() != Type::string) {
        fail("a string");
    }
    return text();
}

std::vector<Value> Value::elements() const {
    if (type() == Type::dict) {
        fail("a list");
    }
    std::vector<Value> out;
    out.reserve(size());
    for (const std::uint32_t slot : slots()) {
        out.push_back(Value(document_, slot));
    }
    return out;
}

std::size_t Value::size() const {
    if (type() == Type::dict) {
        return slots().size() / 2;
    }
    if (type() != Type::list && type() != Type::tuple) {
        fail("a list");
    }
    return slots().size();
}

Value Value::element(std::size_t i) const {
    if (type() != Type::list && type() != Type::tuple) {
        fail("a list");
    }
    if (i >= slots().size()) {
        refuse("expected " + std::to_string(i + 1) + " elements or more, found " +
               std::to_string(slots().size()));
    }
    return at_slot(i);
}

Value Value::key(std::size_t i) const {
    FSDPLAN_ASSERT(type() == Type::dict && i < size(), "the caller asks for entries that are there");
    return at_slot(2 * i);
}

Value Value::value(std::size_t i) const {
    FSDPLAN_ASSERT(type() == Type::dict && i < size(), "the caller asks for entries that are there");
    return at_slot(2 * i + 1);
}

std::optional<Value> Value::find(std::string_view key) const {
    if (type() != Type::dict) {
        fail("a dict");
    }
    // As in Python, the last of equal keys counts.
    for (std::size_t i = size(); i > 0; --i) {
        const Value name = at_slot(2 * i - 2);
        if (name.type() == Type::string && name.text() == key) {
            return at_slot(2 * i - 1);
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

Value Value::callee() const {
    if (type() != Type::call) {
        fail("a call");
    }
    return at_slot(Document::CallSlot::callee);
}

std::string Value::name() const {
    if (type() == Type::call) {
        const Value called = callee();
        return called.type() == Type::name ? called.name() : std::string();
    }
    if (type() != Type::name) {
        fail("a name");
    }
    return std::string(at_slot(0).text()) + "." + std::string(at_slot(1).text());
}

bool Value::spells(std::string_view name) const {
    const std::string_view module = at_slot(0).text();
    const std::string_view last = at_slot(1).text();
    return name.size() == module.size() + 1 + last.size() && name.starts_with(module) &&
           name[module.size()] == '.' && name.ends_with(last);
}

bool Value::is_name(std::string_view name) const {
    return type() == Type::name && spells(name);
}

bool Value::calls(std::string_view name) const {
    return type() == Type::call && callee().is_name(name);
}

Value Value::arguments() const {
    if (type() == Type::persistent) {
        return at_slot(0);
    }
    if (type() != Type::call) {
        fail("a call");
    }
    return at_slot(Document::CallSlot::arguments);
}

std::optional<Value> Value::call_slot(Document::CallSlot slot) const {
    if (type() != Type::call) {
        fail("a call");
    }
    const std::uint32_t index = slots()[slot];
    return index == Document::absent ? std::nullopt : std::optional(Value(document_, index));
}

std::optional<Value> Value::state() const {
    return call_slot(Document::CallSlot::state);
}

std::optional<Value> Value::contents() const {
    return call_slot(Document::CallSlot::contents);
}

std::optional<Value> Value::attribute(std::string_view name) const {
    std::optional<Value> attributes = state();
    if (attributes && attributes->type() == Type::tuple && attributes->size() == 2) {
        attributes = attributes->at_slot(1);
    }
    if (!attributes || attributes->type() != Type::dict) {
        return std::nullopt;
    }
    if (attributes->size() > Document::most_attributes) {
        attributes->refuse("an object with more than " + std::to_string(Document::most_attributes) +
                           " attributes");
    }
    return attributes->find(name);
}

Value Value::attribute_at(std::string_view name) const {
    const std::optional<Value> found = attribute(name);
    if (!found) {
        fail("an object with \"" + std::string(name) + "\"");
    }
    return *found;
}

void Value::fail(std::string_view expected) const {
    refuse("expected " + std::string(expected) + ", found " + std::string(name_of(type())));
}

void Value::refuse(const std::string& message) const {
    document_->fail(node().byte, message);
}

}  // namespace fsdplan::pickle
