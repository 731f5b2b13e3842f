#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.hpp"
#include "model/builder.hpp"
#include "model/config.hpp"
#include "operators/eager.hpp"

namespace fsdplan {

/// Where a family puts its top module: at the root, or into a slot of a model that embeds it (LLaVA).
class Place {
public:
    explicit Place(GraphBuilder& builder) : builder_(&builder) {}
    Place(Scope parent, std::string name)
        : builder_(&parent.builder()), parent_(parent), name_(std::move(name)) {}

    Scope create(const ModuleClass& module_class) const {
        return parent_ ? parent_->child(name_, module_class) : builder_->root(module_class);
    }
    GraphBuilder& builder() const { return *builder_; }

private:
    GraphBuilder* builder_;
    std::optional<Scope> parent_;
    std::string name_;
};

/// One class that a config.json can ask for under "architectures".
struct Architecture {
    std::string_view name;  ///< "LlamaForCausalLM"
    void (*build)(const Config& config, const Place& place);
};

/// An Architecture's `build` from a function that families share: build(family, config, place).
template <const auto& family, auto build>
void built_for(const Config& config, const Place& place) {
    build(family, config, place);
}

/// One model family of transformers: how its classes build their module trees.
/// An entry is one file in src/model/families.
struct FamilyInfo {
    std::span<const std::string_view> model_types;  ///< values of "model_type" in config.json
    /// Whose code it is; absent keys have this library's defaults.
    std::string_view library = "transformers 5.24.0";
    /// What the family can build; the first is taken when a config names no architecture.
    std::span<const Architecture> architectures;
    /// The architecture that AutoModel makes of a nested config (text_config of a multimodal model).
    std::string_view backbone;
    /// `_no_split_modules` of its models, without those of families that they embed (see build_nested).
    std::span<const std::string_view> no_split_classes;
    /// The sequence length that the configuration allows, when it names one.
    std::optional<std::int64_t> (*longest_sequence)(const Config& config);
    /// Plays a training forward of one of its architectures, the module `top`, up to the loss that the model
    /// works out from labels. Empty when it does not know this architecture; null: it knows none.
    Value (*forward)(const Config& config, Eager& f, ModuleIndex top) = nullptr;
    /// The class default of tie_word_embeddings, for models that embed this family.
    bool ties_by_default = false;
};

/// The family of a model_type; throws Error(input) with the near names and the export route.
const FamilyInfo& family_of(const Config& config);
/// The family of this name; errors name `where`.
const FamilyInfo& family_named(std::string_view model_type, const std::string& where);
/// The same for a nested configuration, which may leave its model_type to the model that embeds it.
const FamilyInfo& family_of(const Config& nested, std::string_view absent);

/// Builds the backbone of a nested configuration into `place`. Its no-split classes become the model's too,
/// whether or not the backbone holds them, as in transformers.
void build_nested(const FamilyInfo& family, const Config& nested, const Place& place);

/// max_position_embeddings, when present.
std::optional<std::int64_t> longest_by_positions(const Config& config);

namespace builtin {
std::span<const FamilyInfo* const> families();
}  // namespace builtin

}  // namespace fsdplan
