#include <array>

#include "model/config_fields.hpp"
#include "model/heads.hpp"
#include "model/multimodal.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.gemma3.modeling_gemma3", "Gemma3PreTrainedModel"},
                                  "Gemma3"};
constexpr std::string_view text_family = "gemma3_text";  // whatever text_config calls itself

Scope backbone(const Config& config, const Place& place) {
    const Scope model = place.create(classes.pretrained("Model"));
    const Config vision = config.nested_or_empty("vision_config");
    const Config text = config.nested_or_empty("text_config");
    const Scope tower = nested_model(model, "vision_tower", vision, "siglip_vision_model");
    const Scope projector = model.child("multi_modal_projector", classes.plain("MultiModalProjector"));
    build_nested(family_named(text_family, text.value().where()), text, Place(model, "language_model"));
    const std::int64_t width = patch_width(tower, config);
    projector.parameter("mm_input_projection_weight", {width, token_width(model["language_model"], text)});
    weight_norm(projector, "mm_soft_emb_norm", classes.plain("RMSNorm"), width);
    projector.child("avg_pool", {"torch.nn.modules.pooling.AvgPool2d",
                                 {"torch.nn.modules.pooling._AvgPoolNd", "torch.nn.modules.module.Module"}});
    return model;
}

void conditional_generation(const Config& config, const Place& place) {
    const Scope root = place.create(classes.generative("ForConditionalGeneration"));
    const Scope text = backbone(config, Place(root, "model"))["language_model"];
    output_layer(root, text, nullable_flag(config, "tie_word_embeddings", true));
}

void sequence_classification(const Config& config, const Place& place) {
    ModuleClass c = classes.pretrained("ForSequenceClassification");
    c.bases.insert(c.bases.begin(), "transformers.modeling_layers.GenericForSequenceClassification");
    const Scope root = place.create(c);
    const Scope text = backbone(config, Place(root, "model"))["language_model"];
    linear(root, "score", token_width(text, config), num_labels(config), false);
}

constexpr std::array<std::string_view, 1> model_types{"gemma3"};
constexpr std::array<std::string_view, 1> no_split{"Gemma3DecoderLayer"};
constexpr std::array architectures{
    Architecture{"Gemma3ForConditionalGeneration", conditional_generation},
    Architecture{"Gemma3Model", [](const Config& config, const Place& place) { backbone(config, place); }},
    Architecture{"Gemma3ForSequenceClassification", sequence_classification},
};

}  // namespace

extern const FamilyInfo gemma3;
constinit const FamilyInfo gemma3{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "Gemma3Model",
    .no_split_classes = no_split,
    .longest_sequence =
        [](const Config& config) { return longest_by_positions(config.nested_or_empty("text_config")); },
};

}  // namespace fsdplan::builtin::family
