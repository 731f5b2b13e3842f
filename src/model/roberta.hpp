#pragma once

#include "model/bert_encoder.hpp"

// The heads of RoBERTa, which xlm-roberta shares under its own class names.
namespace fsdplan {

void roberta_for_masked_lm(const BertFamily& family, const Config& config, const Place& place);
void roberta_for_causal_lm(const BertFamily& family, const Config& config, const Place& place);
void roberta_for_sequence_classification(const BertFamily& family, const Config& config, const Place& place);

}  // namespace fsdplan
