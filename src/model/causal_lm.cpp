#include "model/causal_lm.hpp"

#include <algorithm>

#include "model/heads.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t question_answering_outputs = 2;  // start and end of the answer

ModuleClass with_mixin(const ClassSpace& space, const Head& head, std::string_view mixin) {
    ModuleClass out = space.pretrained(head.class_name);
    out.bases.insert(out.bases.begin(), "transformers.modeling_layers." + std::string(mixin));
    return out;
}

ModuleClass class_of(const ClassSpace& space, const Head& head) {
    switch (head.kind) {
        case HeadKind::causal_lm:
            return space.generative(head.class_name);
        case HeadKind::generic_sequence_classifier:
            return with_mixin(space, head, "GenericForSequenceClassification");
        case HeadKind::generic_token_classifier:
            return with_mixin(space, head, "GenericForTokenClassification");
        case HeadKind::generic_question_answering:
            return with_mixin(space, head, "GenericForQuestionAnswering");
        case HeadKind::sequence_classifier:
        case HeadKind::token_classifier:
        case HeadKind::question_answering:
            break;
    }
    return space.pretrained(head.class_name);
}

}  // namespace

bool is_causal_lm(const DecoderFamily& family, const ModuleTree& tree, ModuleIndex m) {
    const std::string_view name = short_name(tree.class_info(m).name);
    return std::ranges::any_of(family.heads, [&](const Head& head) {
        return head.kind == HeadKind::causal_lm && head.class_name == name;
    });
}

void build_backbone(const DecoderFamily& family, const Config& config, const Place& place) {
    family.describe(config).build(place.create(family.space.pretrained(family.model)));
}

void build_with_head(const DecoderFamily& family, const Head& head, const Config& config,
                     const Place& place) {
    const Backbone backbone = family.describe(config);
    const Scope root = place.create(class_of(family.space, head));
    const Scope embedding =
        backbone.build(root.child(std::string(head.slot), family.space.pretrained(family.model)));
    switch (head.kind) {
        case HeadKind::causal_lm: {
            const Scope lm_head = linear(root, "lm_head", backbone.width, backbone.vocab, backbone.head_bias);
            if (backbone.tied) {
                lm_head.tie("weight", embedding, "weight");
            }
            break;
        }
        case HeadKind::sequence_classifier:
        case HeadKind::generic_sequence_classifier:
            linear(root, "score", backbone.width, num_labels(config), false);
            break;
        case HeadKind::token_classifier:
            dropout(root, "dropout");
            linear(root, "classifier", backbone.width, num_labels(config), true);
            break;
        case HeadKind::generic_token_classifier:
            dropout(root, "dropout");
            linear(root, "score", backbone.width, num_labels(config),
                   config.flag("token_classification_bias", true));
            break;
        case HeadKind::question_answering:
        case HeadKind::generic_question_answering:
            linear(root, "qa_outputs", backbone.width, question_answering_outputs, true);
            break;
    }
}

}  // namespace fsdplan
