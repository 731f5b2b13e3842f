#pragma once

#include <cstdint>
#include <string>

#include "model/family.hpp"

// Encoder-decoder models in BART's shape: bart, whisper.
namespace fsdplan {

struct Seq2SeqFamily {
    PrefixedClasses classes;
    bool key_bias;  ///< Whisper's keys have none
    // Class defaults, the same for encoder and decoder.
    std::int64_t width, layers, heads, feed_forward, vocab, pad;
};

struct Seq2SeqSizes {
    Seq2SeqSizes(const Seq2SeqFamily& family, const Config& config);

    std::int64_t width, encoder_layers, decoder_layers, encoder_heads, decoder_heads, encoder_feed_forward,
        decoder_feed_forward, vocab;
    std::string act;
    bool tied;
};

/// The child "layers" of an encoder or a decoder; the latter's layers attend to the encoder too.
void seq2seq_encoder_layers(const Seq2SeqFamily& family, const Config& config, Scope encoder);
void seq2seq_decoder_layers(const Seq2SeqFamily& family, const Config& config, Scope decoder);

}  // namespace fsdplan
