#include <array>

#include "model/config_fields.hpp"
#include "model/heads.hpp"
#include "model/seq2seq.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr Seq2SeqFamily family{
    .classes = {{"transformers.models.whisper.modeling_whisper", "WhisperPreTrainedModel"}, "Whisper"},
    .key_bias = false,
    .width = 384,
    .layers = 4,
    .heads = 6,
    .feed_forward = 1536,
    .vocab = 51865,
    .pad = 50256,
};
constexpr const PrefixedClasses& classes = family.classes;
constexpr std::int64_t kernel = 3;

Scope encoder(const Config& config, Scope parent) {
    const Seq2SeqSizes c(family, config);
    const Scope m = parent.child("encoder", classes.pretrained("Encoder"));
    conv1d(m, "conv1", whole(config, {"num_mel_bins"}, 80), c.width, kernel);
    conv1d(m, "conv2", c.width, c.width, kernel);
    embedding(m, "embed_positions", whole(config, {"max_source_positions"}, 1500), c.width)
        .freeze();  // sinusoids
    seq2seq_encoder_layers(family, config, m);
    layer_norm(m, "layer_norm", c.width);
    return m;
}

Scope decoder(const Config& config, Scope parent) {
    const Seq2SeqSizes c(family, config);
    check_padding(config, family.pad, c.vocab);
    const Scope m = parent.child("decoder", classes.pretrained("Decoder"));
    embedding(m, "embed_tokens", c.vocab, c.width);
    embedding(m, "embed_positions", classes.derived("PositionalEmbedding", classes::embedding()),
              whole(config, {"max_target_positions"}, 448), c.width);
    seq2seq_decoder_layers(family, config, m);
    layer_norm(m, "layer_norm", c.width);
    return m;
}

Scope backbone(const Config& config, const Place& place) {
    const Scope model = place.create(classes.pretrained("Model"));
    encoder(config, model);
    decoder(config, model);
    return model;
}

void output_layer(const Config& config, Scope root, Scope decoder) {
    const Seq2SeqSizes c(family, config);
    const Scope head = linear(root, "proj_out", c.width, c.vocab, false);
    if (c.tied) {
        head.tie("weight", decoder["embed_tokens"], "weight");
    }
}

// Whisper generates with a mixin of its own, which comes first.
ModuleClass conditional_generation_class() {
    ModuleClass c = classes.generative("ForConditionalGeneration");
    const std::vector<std::string> mixins{
        "transformers.models.whisper.generation_whisper.WhisperGenerationMixin",
        "transformers.generation.utils.GenerationMixin",
        "transformers.generation.continuous_batching.continuous_api."
        "ContinuousMixin"};
    c.bases = classes.pretrained("ForConditionalGeneration").bases;
    c.bases.insert(c.bases.begin(), mixins.begin(), mixins.end());
    return c;
}

void conditional_generation(const Config& config, const Place& place) {
    const Scope root = place.create(conditional_generation_class());
    const Scope model = backbone(config, Place(root, "model"));
    output_layer(config, root, model["decoder"]);
}

void causal_lm(const Config& config, const Place& place) {
    const Scope root = place.create(classes.generative("ForCausalLM"));
    const Scope model = root.child("model", classes.pretrained("DecoderWrapper"));
    output_layer(config, root, decoder(config, model));
}

void audio_classification(const Config& config, const Place& place) {
    const Seq2SeqSizes c(family, config);
    const Scope root = place.create(classes.pretrained("ForAudioClassification"));
    encoder(config, root);
    weighted_layer_sum(root, config, c.encoder_layers);
    const std::int64_t projected = whole(config, {"classifier_proj_size"}, 256);
    linear(root, "projector", c.width, projected, true);
    linear(root, "classifier", projected, num_labels(config), true);
}

constexpr std::array<std::string_view, 1> model_types{"whisper"};
constexpr std::array<std::string_view, 2> no_split{"WhisperEncoderLayer", "WhisperDecoderLayer"};
constexpr std::array architectures{
    Architecture{"WhisperForConditionalGeneration", conditional_generation},
    Architecture{"WhisperModel", [](const Config& config, const Place& place) { backbone(config, place); }},
    Architecture{"WhisperForCausalLM", causal_lm},
    Architecture{"WhisperForAudioClassification", audio_classification},
};

}  // namespace

extern const FamilyInfo whisper;
constinit const FamilyInfo whisper{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "WhisperModel",
    .no_split_classes = no_split,
    .longest_sequence = [](const Config& config) { return config.optional_size("max_target_positions"); },
};

}  // namespace fsdplan::builtin::family
