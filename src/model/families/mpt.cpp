#include <algorithm>

#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"
#include "model/foundry_mpt.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.mpt.modeling_mpt", "MptPreTrainedModel"};

void fill_layer(Scope layer, std::int64_t hidden) {
    layer_norm(layer, "norm_1", hidden, false);
    const Scope attention = layer.child("attn", space.plain("MptAttention"));
    linear(attention, "Wqkv", hidden, 3 * hidden, false);
    linear(attention, "out_proj", hidden, hidden, false);
    layer_norm(layer, "norm_2", hidden, false);
    // transformers reads neither expansion_ratio nor no_bias.
    const Scope mlp = layer.child("ffn", space.plain("MptMLP"));
    linear(mlp, "up_proj", hidden, 4 * hidden, false);
    mlp.child("act", ClassSpace{"torch.nn.modules.activation", {}}.plain("GELU"));
    linear(mlp, "down_proj", 4 * hidden, hidden, false);
    dropout(layer, "resid_attn_dropout");
}

Backbone describe(const Config& config) {
    const std::int64_t vocab = whole(config, {"vocab_size"}, 50368);
    const std::int64_t hidden = whole(config, {"hidden_size", "d_model"}, 2048);
    const std::int64_t layers = whole_count(config, {"num_hidden_layers", "n_layers"}, 24);
    check_layers(config, layers);
    const auto build = [=](Scope model) {
        const Scope tokens = embedding(model, "wte", vocab, hidden);
        repeat(model, "blocks", layers, space.layer("MptBlock"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, hidden); });
        layer_norm(model, "norm_f", hidden, false);
        return tokens;
    };
    return {
        .build = build, .vocab = vocab, .width = hidden, .tied = config.flag("tie_word_embeddings", true)};
}

std::optional<std::int64_t> longest_sequence(const Config& config) {
    return config.optional_size("max_seq_len");
}

constexpr std::array heads{
    Head{"MptForCausalLM", HeadKind::causal_lm, "transformer"},
    Head{"MptForSequenceClassification", HeadKind::sequence_classifier, "transformer"},
    Head{"MptForTokenClassification", HeadKind::token_classifier, "transformer"},
    Head{"MptForQuestionAnswering", HeadKind::question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{space, "MptModel", heads, describe};

constexpr auto architectures = [] {
    constexpr auto own = architectures_of<decoder_family>();
    std::array<Architecture, own.size() + 1> out{};
    std::ranges::copy(own, out.begin());
    out.back() = {foundry_mpt_class, build_foundry_mpt};
    return out;
}();
constexpr std::array<std::string_view, 1> model_types{"mpt"};
constexpr std::array<std::string_view, 1> no_split{"MptBlock"};

}  // namespace

extern const FamilyInfo mpt;
constinit const FamilyInfo mpt{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_sequence,
    .forward = foundry_mpt_forward,
};

}  // namespace fsdplan::builtin::family
