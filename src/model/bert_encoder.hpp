#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "model/family.hpp"

// Text encoders in BERT's shape: bert, roberta and xlm-roberta whole; deberta-v2 puts the same parts around
// an attention of its own.
namespace fsdplan {

struct BertFamily {
    PrefixedClasses classes;
    std::string_view slot;  ///< the heads' name for the backbone: "bert"
    std::int64_t vocab;     ///< class default of vocab_size
    std::int64_t pad;       ///< class default of pad_token_id
    /// RoBERTa: positions start after the padding token's row, and their table is registered last.
    bool padded_positions;
    bool head_first;  ///< XLM-RoBERTa registers its heads before the backbone
};

struct BertSizes {
    BertSizes(const BertFamily& family, const Config& config);

    std::int64_t hidden, intermediate, layers, heads, vocab, positions, types;
    std::string act;
    bool decoder, cross_attention, tied;
};

/// `<prefix>Model`, with or without the pooler.
Scope bert_backbone(const BertFamily& family, const Config& config, const Place& place, bool pooler);

/// The backbone in its slot of `root` and what `head` builds, in the family's order. Returns the backbone.
Scope bert_with_head(const BertFamily& family, const Config& config, Scope root, bool pooler,
                     const std::function<void(const BertSizes& sizes)>& head);

/// dense, LayerNorm, dropout: the end of an attention or of a feed-forward part.
void bert_output(Scope parent, const ModuleClass& module_class, std::int64_t in, std::int64_t hidden);
/// The children "intermediate" and "output" of a layer.
void bert_feed_forward(Scope layer, const PrefixedClasses& classes, std::int64_t hidden,
                       std::int64_t intermediate, std::string_view act);

/// FamilyInfo::forward of a family's masked language model and its classifiers of sequences and tokens.
Value bert_forward(const BertFamily& family, const Config& config, Eager& f, ModuleIndex top);
template <const BertFamily& family>
Value bert_forward(const Config& config, Eager& f, ModuleIndex top) {
    return bert_forward(family, config, f, top);
}

// Architectures that all of them have.
void bert_model(const BertFamily& family, const Config& config, const Place& place);
void bert_for_multiple_choice(const BertFamily& family, const Config& config, const Place& place);
void bert_for_token_classification(const BertFamily& family, const Config& config, const Place& place);
void bert_for_question_answering(const BertFamily& family, const Config& config, const Place& place);

/// max_position_embeddings without the rows that RoBERTa leaves for padding.
std::optional<std::int64_t> longest_after_padding(const Config& config);

}  // namespace fsdplan
