#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/model.hpp"

namespace fsdplan {

/// A Hugging Face config.json: values by key, with the class defaults of transformers 5.24 for absent ones.
///
/// null means absent. A key may have an alias (`num_hidden_layers` and `n_layer`); the first found counts.
class Config {
public:
    explicit Config(json::Value object)
        : object_(object), defaults_used_(std::make_shared<std::vector<std::string>>()) {}

    bool has(std::string_view key) const;
    /// A size: from `least` to 2^40. The default is used when the key is absent.
    std::int64_t size(std::string_view key, std::int64_t absent, std::int64_t least = 1) const;
    std::int64_t size(std::initializer_list<std::string_view> keys, std::int64_t absent,
                      std::int64_t least = 1) const;
    std::optional<std::int64_t> optional_size(std::string_view key) const;
    /// A number that may be zero or negative, for keys where that switches something off: at most 2^40.
    std::int64_t integer(std::string_view key, std::int64_t absent) const;
    /// A number of layers, experts or the like: at most 100 000, since each makes modules.
    std::int64_t count(std::string_view key, std::int64_t absent) const;
    std::int64_t count(std::initializer_list<std::string_view> keys, std::int64_t absent) const;
    bool flag(std::string_view key, bool absent) const;
    double number(std::string_view key, double absent) const;
    std::string text(std::string_view key, std::string_view absent) const;
    std::vector<std::string> strings(std::string_view key) const;  ///< empty when absent
    std::vector<std::int64_t> sizes(std::string_view key, std::vector<std::int64_t> absent) const;
    /// A nested configuration such as text_config; nothing when absent.
    std::optional<Config> nested(std::string_view key) const;
    /// The same; when absent a configuration without any key, so that all defaults hold.
    Config nested_or_empty(std::string_view key) const;

    /// a * b, for sizes that a family multiplies; throws Error(input) when no model could have it.
    std::int64_t product(std::int64_t a, std::int64_t b) const;
    /// Throws unless `divisor` divides the value of `key`, as transformers would on construction.
    void require_divides(std::int64_t divisor, std::string_view divisor_key, std::int64_t value,
                         std::string_view key) const;
    /// Throws Error(input) at this key.
    [[noreturn]] void refuse(std::string_view key, const std::string& message) const;

    /// "dtype", else "torch_dtype", else nothing.
    std::optional<DType> dtype() const;
    json::Value value() const { return object_; }
    /// "vocab_size = 32000", … for every size and count that was asked for and was not there.
    const std::vector<std::string>& defaults_used() const { return *defaults_used_; }

private:
    Config(json::Value object, std::shared_ptr<std::vector<std::string>> defaults_used)
        : object_(object), defaults_used_(std::move(defaults_used)) {}
    std::optional<json::Value> present(std::string_view key) const;
    std::int64_t defaulted(std::string_view key, std::int64_t absent) const;

    json::Value object_;
    std::shared_ptr<std::vector<std::string>> defaults_used_;  // one list with the nested configurations
};

}  // namespace fsdplan
