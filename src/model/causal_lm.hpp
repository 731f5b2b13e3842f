#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "model/blocks.hpp"
#include "model/family.hpp"
#include "operators/language_model.hpp"

// Decoder-only language models: a backbone that each family describes, and the heads that transformers
// puts on it.
namespace fsdplan {

/// The backbone of one configuration.
struct Backbone {
    /// Fills the backbone's module and returns the module with the input embedding.
    std::function<Scope(Scope model)> build = {};
    std::int64_t vocab = 0;
    std::int64_t width = 0;  ///< features that a head reads
    bool tied = false;       ///< the language model's head shares the input embedding's weight
    bool head_bias = false;  ///< of the language model's head
};

enum class HeadKind : std::uint8_t {
    causal_lm,
    sequence_classifier,
    token_classifier,
    question_answering,
    // The same through transformers' GenericFor… mixins.
    generic_sequence_classifier,
    generic_token_classifier,
    generic_question_answering,
};

/// A class that puts a head on the backbone.
struct Head {
    std::string_view class_name;
    HeadKind kind = HeadKind::causal_lm;
    std::string_view slot = "model";  ///< the backbone's attribute
};

struct DecoderFamily {
    ClassSpace space;
    std::string_view model;  ///< class of the backbone
    std::span<const Head> heads;
    Backbone (*describe)(const Config& config) = nullptr;
};

/// Whether a module is one of the family's models with a language head.
bool is_causal_lm(const DecoderFamily& family, const ModuleTree& tree, ModuleIndex m);
void build_backbone(const DecoderFamily& family, const Config& config, const Place& place);
void build_with_head(const DecoderFamily& family, const Head& head, const Config& config, const Place& place);

/// A family's FamilyInfo::forward from one that plays the backbone.
template <const DecoderFamily& family,
          Value (*backbone)(const Config& config, Eager& f, ModuleIndex model, const Value& ids)>
Value causal_lm_forward(const Config& config, Eager& f, ModuleIndex top) {
    if (!is_causal_lm(family, f.tree(), top) || f.workload().attention == AttentionImplementation::eager) {
        return {};
    }
    const auto body = [&](ModuleIndex model, const Value& ids) { return backbone(config, f, model, ids); };
    return causal_lm(f, top, family.heads.front().slot, "lm_head", body);
}

/// What the family can build: the heads in their order, then the bare backbone.
template <const DecoderFamily& family>
constexpr auto architectures_of() {
    constexpr std::size_t n = family.heads.size();
    return []<std::size_t... I>(std::index_sequence<I...>) {
        return std::array<Architecture, n + 1>{
            Architecture{family.heads[I].class_name,
                         [](const Config& config, const Place& place) {
                             build_with_head(family, family.heads[I], config, place);
                         }}...,
            Architecture{family.model, [](const Config& config, const Place& place) {
                             build_backbone(family, config, place);
                         }}};
    }
    (std::make_index_sequence<n>{});
}

}  // namespace fsdplan
