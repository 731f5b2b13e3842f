#pragma once

#include <string>

#include "operators/attention.hpp"
#include "operators/layers.hpp"

// Text encoders in BERT's shape, by the names that transformers gives their modules.
namespace fsdplan::bert {

struct Sizes {
    std::int64_t heads = 0;
    std::string act;
    double dropout = 0.0;           ///< of embeddings and of what is added to a residual
    bool padded_positions = false;  ///< RoBERTa counts positions from the tokens that are no padding
};

/// The model below a head: the states of its last layer, or what its pooler makes of the first token's.
Value encoder(Eager& f, ModuleIndex model, const Value& ids, const Sizes& sizes);

/// BERT's "cls", up to the logits.
Value prediction_head(Eager& f, ModuleIndex m, const Value& states, std::string_view act);
/// RoBERTa's "lm_head".
Value language_head(Eager& f, ModuleIndex m, const Value& states);
/// RoBERTa's "classifier" of a sequence.
Value classification_head(Eager& f, ModuleIndex m, const Value& states, double dropout);

}  // namespace fsdplan::bert
