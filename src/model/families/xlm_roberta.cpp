#include <array>

#include "model/roberta.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr BertFamily family{
    .classes = {{"transformers.models.xlm_roberta.modeling_xlm_roberta", "XLMRobertaPreTrainedModel"},
                "XLMRoberta"},
    .slot = "roberta",
    .vocab = 30522,
    .pad = 1,
    .padded_positions = true,
    .head_first = true,
};

constexpr std::array<std::string_view, 1> model_types{"xlm-roberta"};
constexpr std::array<std::string_view, 2> no_split{"XLMRobertaEmbeddings", "XLMRobertaLayer"};
constexpr std::array architectures{
    Architecture{"XLMRobertaForMaskedLM", built_for<family, roberta_for_masked_lm>},
    Architecture{"XLMRobertaModel", built_for<family, bert_model>},
    Architecture{"XLMRobertaForCausalLM", built_for<family, roberta_for_causal_lm>},
    Architecture{"XLMRobertaForSequenceClassification",
                 built_for<family, roberta_for_sequence_classification>},
    Architecture{"XLMRobertaForMultipleChoice", built_for<family, bert_for_multiple_choice>},
    Architecture{"XLMRobertaForTokenClassification", built_for<family, bert_for_token_classification>},
    Architecture{"XLMRobertaForQuestionAnswering", built_for<family, bert_for_question_answering>},
};

}  // namespace

extern const FamilyInfo xlm_roberta;
constinit const FamilyInfo xlm_roberta{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "XLMRobertaModel",
    .no_split_classes = no_split,
    .longest_sequence = longest_after_padding,
    .forward = bert_forward<family>,
};

}  // namespace fsdplan::builtin::family
