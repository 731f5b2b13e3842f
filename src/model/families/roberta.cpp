#include "model/roberta.hpp"

#include <array>

namespace fsdplan::builtin::family {
namespace {

constexpr BertFamily family{
    .classes = {{"transformers.models.roberta.modeling_roberta", "RobertaPreTrainedModel"}, "Roberta"},
    .slot = "roberta",
    .vocab = 50265,
    .pad = 1,
    .padded_positions = true,
    .head_first = false,
};

constexpr std::array<std::string_view, 1> model_types{"roberta"};
constexpr std::array<std::string_view, 2> no_split{"RobertaEmbeddings", "RobertaLayer"};
constexpr std::array architectures{
    Architecture{"RobertaForMaskedLM", built_for<family, roberta_for_masked_lm>},
    Architecture{"RobertaModel", built_for<family, bert_model>},
    Architecture{"RobertaForCausalLM", built_for<family, roberta_for_causal_lm>},
    Architecture{"RobertaForSequenceClassification", built_for<family, roberta_for_sequence_classification>},
    Architecture{"RobertaForMultipleChoice", built_for<family, bert_for_multiple_choice>},
    Architecture{"RobertaForTokenClassification", built_for<family, bert_for_token_classification>},
    Architecture{"RobertaForQuestionAnswering", built_for<family, bert_for_question_answering>},
};

}  // namespace

extern const FamilyInfo roberta;
constinit const FamilyInfo roberta{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "RobertaModel",
    .no_split_classes = no_split,
    .longest_sequence = longest_after_padding,
    .forward = bert_forward<family>,
};

}  // namespace fsdplan::builtin::family
