#include "model/bert_encoder.hpp"

#include <algorithm>

#include "model/config_fields.hpp"
#include "model/heads.hpp"
#include "operators/bert.hpp"
#include "operators/language_model.hpp"

namespace fsdplan {
namespace {

void embeddings(const BertFamily& family, const BertSizes& c, Scope model) {
    const Scope m = model.child("embeddings", family.classes.plain("Embeddings"));
    embedding(m, "word_embeddings", c.vocab, c.hidden);
    if (!family.padded_positions) {
        embedding(m, "position_embeddings", c.positions, c.hidden);
    }
    embedding(m, "token_type_embeddings", c.types, c.hidden);
    layer_norm(m, "LayerNorm", c.hidden);
    dropout(m, "dropout");
    if (family.padded_positions) {
        embedding(m, "position_embeddings", c.positions, c.hidden);
    }
    m.buffer("position_ids", {1, c.positions}, DType::int64, false);
    m.buffer("token_type_ids", {1, c.positions}, DType::int64, false);
}

void add_attention(const BertFamily& family, const Config& config, const BertSizes& c, Scope layer,
                   std::string name, std::string_view self_class) {
    // Models that embed in another width than they compute in may have heads that do not add up.
    if (!config.has("embedding_size")) {
        config.require_divides(c.heads, "num_attention_heads", c.hidden, "hidden_size");
    }
    const std::int64_t width = c.heads * (c.hidden / c.heads);
    const Scope m = layer.child(std::move(name), family.classes.plain("Attention"));
    const Scope self = m.child("self", family.classes.plain(self_class));
    linear(self, "query", c.hidden, width, true);
    linear(self, "key", c.hidden, width, true);
    linear(self, "value", c.hidden, width, true);
    dropout(self, "dropout");
    bert_output(m, family.classes.plain("SelfOutput"), c.hidden, c.hidden);
}

}  // namespace

BertSizes::BertSizes(const BertFamily& family, const Config& config)
    : hidden(whole(config, {"hidden_size"}, 768)),
      intermediate(whole(config, {"intermediate_size"}, 3072)),
      layers(whole_count(config, {"num_hidden_layers"}, 12)),
      heads(whole(config, {"num_attention_heads"}, 12)),
      vocab(whole(config, {"vocab_size"}, family.vocab)),
      positions(whole(config, {"max_position_embeddings"}, 512)),
      types(whole(config, {"type_vocab_size"}, 2, 0)),
      act(config.text("hidden_act", "gelu")),
      decoder(config.flag("is_decoder", false)),
      cross_attention(config.flag("add_cross_attention", false)),
      tied(config.flag("tie_word_embeddings", true)) {
    check_padding(config, family.pad, vocab);
    if (family.padded_positions) {
        check_padding(config, family.pad, positions, "max_position_embeddings");
    }
}

Value bert_forward(const BertFamily& family, const Config& config, Eager& f, ModuleIndex top) {
    const std::string_view name = short_name(f.tree().class_info(top).name);
    const bool masked = name == family.classes.full("ForMaskedLM");
    const bool tokens = name == family.classes.full("ForTokenClassification");
    // One label, or another problem_type, means another loss.
    const bool sequences = name == family.classes.full("ForSequenceClassification") &&
                           num_labels(config) > 1 && !config.has("problem_type");
    const BertSizes c(family, config);
    if (!(masked || tokens || sequences) || c.decoder ||
        f.workload().attention != AttentionImplementation::sdpa || f.workload().loss.in_pieces()) {
        return {};
    }
    const double hidden_dropout = config.number("hidden_dropout_prob", 0.1);
    const double head_dropout = config.number("classifier_dropout", hidden_dropout);
    const bert::Sizes sizes{.heads = c.heads,
                            .act = c.act,
                            .dropout = hidden_dropout,
                            .padded_positions = family.padded_positions};
    const Value ids = token_ids(f);
    return f.call(top, {&ids}, [&] {
        const ModuleIndex model = layer::child(f, top, family.slot);
        const Value states = bert::encoder(f, model, ids, sizes);
        if (!masked) {
            const ModuleIndex classifier = layer::child(f, top, "classifier");
            if (f.child(classifier, "dense")) {
                return class_loss(f, bert::classification_head(f, classifier, states, head_dropout));
            }
            const Value dropped = layer::dropout(f, layer::child(f, top, "dropout"), states, head_dropout);
            const Value logits = layer::linear(f, classifier, dropped);
            return tokens ? token_loss(f, logits) : class_loss(f, logits);
        }
        const std::optional<ModuleIndex> cls = f.child(top, "cls");
        const Value logits = cls ? bert::prediction_head(f, *cls, states, sizes.act)
                                 : bert::language_head(f, layer::child(f, top, "lm_head"), states);
        f.use_as(logits, Storage::Use::logits);
        return token_loss(f, logits);
    });
}

Scope bert_backbone(const BertFamily& family, const Config& config, const Place& place, bool pooler) {
    const BertSizes c(family, config);
    if (c.cross_attention && !c.decoder && c.layers > 0) {
        config.refuse("add_cross_attention", "cross-attention needs is_decoder");
    }
    const Scope model = place.create(family.classes.pretrained("Model"));
    embeddings(family, c, model);
    const auto fill = [&](Scope layer, std::int64_t /*index*/) {
        add_attention(family, config, c, layer, "attention", "SelfAttention");
        if (c.cross_attention) {
            add_attention(family, config, c, layer, "crossattention", "CrossAttention");
        }
        bert_feed_forward(layer, family.classes, c.hidden, c.intermediate, c.act);
    };
    repeat(model.child("encoder", family.classes.plain("Encoder")), "layer", c.layers,
           family.classes.layer("Layer"), fill);
    if (pooler) {
        const Scope m = model.child("pooler", family.classes.plain("Pooler"));
        linear(m, "dense", c.hidden, c.hidden, true);
        activation(m, "activation", "tanh");
    }
    return model;
}

Scope bert_with_head(const BertFamily& family, const Config& config, Scope root, bool pooler,
                     const std::function<void(const BertSizes& sizes)>& head) {
    const BertSizes sizes(family, config);
    if (family.head_first) {
        head(sizes);
    }
    const Scope model = bert_backbone(family, config, Place(root, std::string(family.slot)), pooler);
    if (!family.head_first) {
        head(sizes);
    }
    return model;
}

void bert_output(Scope parent, const ModuleClass& module_class, std::int64_t in, std::int64_t hidden) {
    const Scope m = parent.child("output", module_class);
    linear(m, "dense", in, hidden, true);
    layer_norm(m, "LayerNorm", hidden);
    dropout(m, "dropout");
}

void bert_feed_forward(Scope layer, const PrefixedClasses& classes, std::int64_t hidden,
                       std::int64_t intermediate, std::string_view act) {
    const Scope m = layer.child("intermediate", classes.plain("Intermediate"));
    linear(m, "dense", hidden, intermediate, true);
    activation(m, "intermediate_act_fn", act);
    bert_output(layer, classes.plain("Output"), intermediate, hidden);
}

void bert_model(const BertFamily& family, const Config& config, const Place& place) {
    bert_backbone(family, config, place, true);
}

void bert_for_multiple_choice(const BertFamily& family, const Config& config, const Place& place) {
    const Scope root = place.create(family.classes.pretrained("ForMultipleChoice"));
    bert_with_head(family, config, root, true, [&](const BertSizes& c) {
        dropout(root, "dropout");
        linear(root, "classifier", c.hidden, 1, true);
    });
}

void bert_for_token_classification(const BertFamily& family, const Config& config, const Place& place) {
    const Scope root = place.create(family.classes.pretrained("ForTokenClassification"));
    bert_with_head(family, config, root, false, [&](const BertSizes& c) {
        dropout(root, "dropout");
        linear(root, "classifier", c.hidden, num_labels(config), true);
    });
}

void bert_for_question_answering(const BertFamily& family, const Config& config, const Place& place) {
    const Scope root = place.create(family.classes.pretrained("ForQuestionAnswering"));
    bert_with_head(family, config, root, false, [&](const BertSizes& c) {
        linear(root, "qa_outputs", c.hidden, num_labels(config), true);
    });
}

std::optional<std::int64_t> longest_after_padding(const Config& config) {
    const std::optional<std::int64_t> rows = longest_by_positions(config);
    const std::optional<json::Value> pad = config.value().find("pad_token_id");
    const std::int64_t last_padding = pad && pad->is_integer() ? pad->integer() : 1;
    return rows ? std::optional(std::clamp<std::int64_t>(*rows - last_padding - 1, 1, *rows)) : std::nullopt;
}

}  // namespace fsdplan
