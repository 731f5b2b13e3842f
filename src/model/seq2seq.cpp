#include "model/seq2seq.hpp"

#include "model/config_fields.hpp"
#include "model/layer_parts.hpp"

namespace fsdplan {
namespace {

void feed_forward(Scope layer, std::int64_t width, std::int64_t intermediate) {
    linear(layer, "fc1", width, intermediate, true);
    linear(layer, "fc2", intermediate, width, true);
    layer_norm(layer, "final_layer_norm", width);
}

void attention(const Seq2SeqFamily& family, const Seq2SeqSizes& c, Scope layer, std::string name) {
    kvqo_attention(layer, std::move(name), family.classes.plain("Attention"), c.width, family.key_bias);
}

}  // namespace

// The standard names (hidden_size …) are set last in transformers and so count more than the family's own.
Seq2SeqSizes::Seq2SeqSizes(const Seq2SeqFamily& family, const Config& config)
    : width(whole(config, {"hidden_size", "d_model"}, family.width)),
      encoder_layers(whole_count(config, {"num_hidden_layers", "encoder_layers"}, family.layers)),
      decoder_layers(whole_count(config, {"decoder_layers"}, family.layers)),
      encoder_heads(whole(config, {"num_attention_heads", "encoder_attention_heads"}, family.heads)),
      decoder_heads(whole(config, {"decoder_attention_heads"}, family.heads)),
      encoder_feed_forward(whole(config, {"encoder_ffn_dim"}, family.feed_forward)),
      decoder_feed_forward(whole(config, {"decoder_ffn_dim"}, family.feed_forward)),
      vocab(whole(config, {"vocab_size"}, family.vocab)),
      act(config.text("activation_function", "gelu")),
      tied(config.flag("tie_word_embeddings", true)) {}

void seq2seq_encoder_layers(const Seq2SeqFamily& family, const Config& config, Scope encoder) {
    const Seq2SeqSizes c(family, config);
    const auto fill = [&](Scope layer, std::int64_t /*index*/) {
        config.require_divides(c.encoder_heads, "encoder_attention_heads", c.width, "d_model");
        attention(family, c, layer, "self_attn");
        layer_norm(layer, "self_attn_layer_norm", c.width);
        activation(layer, "activation_fn", c.act);
        feed_forward(layer, c.width, c.encoder_feed_forward);
    };
    repeat(encoder, "layers", c.encoder_layers, family.classes.layer("EncoderLayer"), fill);
}

void seq2seq_decoder_layers(const Seq2SeqFamily& family, const Config& config, Scope decoder) {
    const Seq2SeqSizes c(family, config);
    const auto fill = [&](Scope layer, std::int64_t /*index*/) {
        config.require_divides(c.decoder_heads, "decoder_attention_heads", c.width, "d_model");
        attention(family, c, layer, "self_attn");
        activation(layer, "activation_fn", c.act);
        layer_norm(layer, "self_attn_layer_norm", c.width);
        attention(family, c, layer, "encoder_attn");
        layer_norm(layer, "encoder_attn_layer_norm", c.width);
        feed_forward(layer, c.width, c.decoder_feed_forward);
    };
    repeat(decoder, "layers", c.decoder_layers, family.classes.layer("DecoderLayer"), fill);
}

}  // namespace fsdplan
