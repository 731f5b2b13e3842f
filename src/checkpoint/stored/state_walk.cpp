#include "checkpoint/stored/state_walk.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

using pickle::Type;
using pickle::Value;

constexpr std::size_t deepest = 64;
// What the memo shares is visited again wherever it is used. Real checkpoints share little.
constexpr std::size_t most_visits_per_value = 16;
constexpr std::size_t fewest_visits = 1000;
constexpr std::size_t most_text = std::size_t{1} << 28U;

struct Visit {
    Value value;
    std::string name;
    KeyPath path;
};

class Walker {
public:
    explicit Walker(const pickle::Document& document) : document_(document) {}

    StateWalk walk() {
        visits_.push_back({document_.root(), "", {}});
        while (!visits_.empty()) {
            const Visit visit = std::move(visits_.back());
            visits_.pop_back();
            look_at(visit);
        }
        return std::move(out_);
    }

private:
    void look_at(const Visit& visit) {
        const Value& value = visit.value;
        if (value.type() == Type::call) {
            look_at_call(visit);
        } else if (value.type() == Type::dict) {
            enter_dict(visit, value);
        } else if ((value.type() == Type::list || value.type() == Type::tuple) && holds_more(value)) {
            enter_list(visit, value);
        } else {
            add_leaf(visit, std::nullopt);
        }
    }

    void look_at_call(const Visit& visit) {
        if (std::optional<TorchTensor> tensor = torch_tensor(visit.value)) {
            pieces_ += tensor->pieces.size();
            if (pieces_ > document_.size()) {
                visit.value.refuse("more pieces of tensors than values");
            }
            add_leaf(visit, std::move(tensor));
            return;
        }
        const std::optional<Value> contents = visit.value.contents();
        if (contents && contents->type() == Type::dict) {
            enter_dict(visit, *contents);
        } else if (!visit.value.calls("collections.OrderedDict")) {
            ++out_.opaque[visit.value.name()];
            add_leaf(visit, std::nullopt);
        }
    }

    static bool holds_more(const Value& list) {
        for (std::size_t i = 0; i < list.size(); ++i) {
            const Type type = list.element(i).type();
            if (type == Type::dict || type == Type::call || type == Type::list || type == Type::tuple) {
                return true;
            }
        }
        return false;
    }

    // Children go on the stack last first, so that they come off in order.
    void enter_dict(const Visit& visit, const Value& dict) {
        for (std::size_t i = dict.size(); i > 0; --i) {
            push(visit, key_text(dict.key(i - 1)), dict.value(i - 1));
        }
    }
    void enter_list(const Visit& visit, const Value& list) {
        for (std::size_t i = list.size(); i > 0; --i) {
            push(visit, number_text(static_cast<std::int64_t>(i - 1)), list.element(i - 1));
        }
    }

    std::string_view key_text(const Value& key) {
        if (key.type() == Type::integer) {
            return number_text(key.integer());
        }
        return key.type() == Type::string ? key.string() : pickle::name_of(key.type());
    }
    std::string_view number_text(std::int64_t number) {
        return out_.numbers.emplace_back(std::to_string(number));
    }

    void push(const Visit& parent, std::string_view key, const Value& value) {
        if (parent.path.size() == deepest) {
            value.refuse("is nested deeper than " + std::to_string(deepest));
        }
        Visit child{value, parent.name, parent.path};
        if (!child.path.empty()) {
            child.name += '.';
        }
        child.name += key;
        child.path.push_back(key);
        if (++visited_ > most_visits_per_value * document_.size() + fewest_visits) {
            value.refuse("the pickle's " + std::to_string(document_.size()) +
                         " values are shared under more than " + std::to_string(visited_ - 1) + " names");
        }
        text_ += child.name.size() + child.path.size() * sizeof(std::string_view);
        if (text_ > most_text) {
            value.refuse("names of more than " + std::to_string(most_text) + " bytes in all");
        }
        visits_.push_back(std::move(child));
    }

    void add_leaf(const Visit& visit, std::optional<TorchTensor> tensor) {
        out_.leaves.push_back({visit.name, visit.path, std::move(tensor)});
    }

    const pickle::Document& document_;
    StateWalk out_;
    std::vector<Visit> visits_;
    std::size_t pieces_ = 0;
    std::size_t visited_ = 0;
    std::size_t text_ = 0;
};

}  // namespace

StateWalk walk_state(const pickle::Document& document) {
    return Walker(document).walk();
}

}  // namespace fsdplan
