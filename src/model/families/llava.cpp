#include <array>

#include "model/multimodal.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.llava.modeling_llava", "LlavaPreTrainedModel"},
                                  "Llava"};

// What LlavaConfig takes when the file has no vision_config.
constexpr std::string_view default_tower =
    R"({"model_type": "clip_vision_model", "intermediate_size": 4096, "hidden_size": 1024, "patch_size": 14,
        "image_size": 336, "num_hidden_layers": 24, "num_attention_heads": 16, "projection_dim": 768})";

Config vision_config(const Config& config) {
    static const json::Document absent(default_tower, "(default vision_config)");
    return config.nested("vision_config").value_or(Config(absent.root()));
}

// One index, or a list of layers whose states are joined.
std::int64_t feature_layers(const Config& config) {
    const std::optional<json::Value> layers = config.value().find("vision_feature_layer");
    return layers && layers->is_array() ? static_cast<std::int64_t>(layers->size()) : 1;
}

Scope backbone(const Config& config, const Place& place) {
    const Scope model = place.create(classes.pretrained("Model"));
    const Scope tower = nested_model(model, "vision_tower", vision_config(config), "clip_vision_model");
    const Scope projector = model.child("multi_modal_projector", classes.plain("MultiModalProjector"));
    const Config text_config = config.nested_or_empty("text_config");
    const Scope text = nested_model(model, "language_model", text_config, "llama");
    const std::int64_t width = token_width(text, text_config);
    const bool bias = config.flag("multimodal_projector_bias", true);
    const std::int64_t features = config.product(patch_width(tower, config), feature_layers(config));
    linear(projector, "linear_1", features, width, bias);
    activation(projector, "act", config.text("projector_hidden_act", "gelu"));
    linear(projector, "linear_2", width, width, bias);
    return model;
}

bool tied(const Config& config) {
    const Config text = config.nested_or_empty("text_config");
    return config.flag("tie_word_embeddings", false) ||
           text.flag("tie_word_embeddings", family_of(text, "llama").ties_by_default);
}

void conditional_generation(const Config& config, const Place& place) {
    const Scope root = place.create(classes.generative("ForConditionalGeneration"));
    const Scope text = backbone(config, Place(root, "model"))["language_model"];
    output_layer(root, text, tied(config));
}

constexpr std::array<std::string_view, 1> model_types{"llava"};
constexpr std::array architectures{
    Architecture{"LlavaForConditionalGeneration", conditional_generation},
    Architecture{"LlavaModel", [](const Config& config, const Place& place) { backbone(config, place); }},
};

}  // namespace

extern const FamilyInfo llava;
constinit const FamilyInfo llava{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "LlavaModel",
    .no_split_classes = {},
    .longest_sequence =
        [](const Config& config) {
            const Config text = config.nested_or_empty("text_config");
            return family_of(text, "llama").longest_sequence(text);
        },
};

}  // namespace fsdplan::builtin::family
