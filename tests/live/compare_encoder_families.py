#!/usr/bin/env python3
"""The comparison of compare_families.py for encoders, encoder-decoders, speech, vision and multimodal models.

    compare_encoder_families.py --list-tree build/dev/tests/list_tree [--family bert ...] [--count 40] [--seed 1]
"""
from __future__ import annotations

import sys

from compare_families import ACTIVATIONS, Draw, gen_gemma3_text, gen_llama, gen_qwen2, layer_types, layers, main, rope_dict


def labels(d: Draw):
    d.maybe("num_labels", 0, 1, 2, 5, chance=0.3)
    d.maybe("id2label", {"0": "a"}, {"0": "a", "1": "b", "2": "c"}, {}, None, chance=0.3)
    if "num_labels" in d.keys:  # the saved form has the names that belong to it
        d.keys.pop("id2label", None)
    d.maybe("problem_type", "regression", "single_label_classification", None, chance=0.2)
    d.rarely("num_labels", None, "two")


def width(d: Draw, key="hidden_size", heads_key="num_attention_heads", spellings=None):
    """A width and a number of heads that mostly divides it, each under one of its names."""
    heads = d.key(d.rng.choice([heads_key, *(spellings or {}).get(heads_key, [])]), 1, 2, 3, 4)
    name = d.rng.choice([key, *(spellings or {}).get(key, [])])
    d.keys[name] = heads * d.rng.choice([4, 6, 8, 7]) + (d.rng.choice([1, 2]) if d.rng.random() < 0.06 else 0)
    if d.rng.random() < 0.1:
        d.keys[key] = 24
    return d.keys[name]


def text_keys(d: Draw, act="hidden_act"):
    d.key("vocab_size", 50, 97, 130)
    d.maybe(act, *ACTIVATIONS)
    d.flags("tie_word_embeddings")
    d.maybe("pad_token_id", 0, 1, 7, None, -1, chance=0.4)
    d.rarely("pad_token_id", 10_000, -200, 20)
    d.rarely("vocab_size", None, 1, "many", 3.0)
    labels(d)


def gen_bert(d: Draw):
    text_keys(d)
    width(d)
    layers(d)
    d.maybe("intermediate_size", 10, 33, 64, chance=0.9)
    d.maybe("max_position_embeddings", 1, 8, 40, 514)
    d.maybe("type_vocab_size", 0, 1, 2, 3)
    d.flags("use_cache")
    d.maybe("is_decoder", True, False, chance=0.4)
    d.maybe("add_cross_attention", True, False, chance=0.3)
    d.maybe("embedding_size", 16, chance=0.1)
    d.maybe("classifier_dropout", 0.3, None)
    d.rarely("hidden_size", None)
    d.rarely("num_hidden_layers", None)


def gen_deberta(d: Draw):
    text_keys(d)
    hidden = width(d)
    layers(d)
    d.maybe("intermediate_size", 10, 33, chance=0.95)
    d.maybe("max_position_embeddings", 8, 40)
    d.maybe("type_vocab_size", 0, 2, 3)
    d.flags("relative_attention", "share_att_key", "position_biased_input", "legacy")
    d.maybe("pos_att_type", "p2c|c2p", ["p2c", "c2p"], "C2P", ["c2p"], [], None, "none", "p2c | c2p", chance=0.8)
    d.maybe("max_relative_positions", -1, 0, 12)
    d.maybe("position_buckets", -1, 0, 10, 256)
    d.maybe("norm_rel_ebd", "layer_norm", "none", "Layer_Norm|x", "batch_norm")
    d.maybe("conv_kernel_size", 0, 1, 3, 4, -2)
    d.maybe("conv_groups", 1, 2, 5, chance=0.3)
    d.maybe("conv_act", "tanh", "gelu")
    d.maybe("embedding_size", hidden, 10, chance=0.3)
    d.maybe("attention_head_size", 4, 5, chance=0.2)
    d.maybe("pooler_hidden_size", hidden, 11, chance=0.3)
    d.maybe("pooler_hidden_act", "gelu", "tanh")
    d.maybe("cls_dropout", 0.1, None)


def gen_modernbert(d: Draw):
    text_keys(d, "hidden_activation")
    d.keys["pad_token_id"] = d.rng.choice([0, 3, None, None, 5])
    if d.rng.random() < 0.05:
        del d.keys["pad_token_id"]
    hidden = width(d)
    n = layers(d, most=5)
    d.maybe("intermediate_size", 10, 33, chance=0.9)
    d.maybe("max_position_embeddings", 8, 40)
    d.flags("norm_bias", "attention_bias", "mlp_bias", "decoder_bias", "classifier_bias", "sparse_prediction")
    d.maybe("classifier_activation", *ACTIVATIONS, chance=0.2)
    d.maybe("attention_dropout", 0.0, 0.1, 0, 1)
    d.maybe("global_attn_every_n_layers", 1, 2, 3, 4)
    d.rarely("global_attn_every_n_layers", 0, None)
    layer_types(d, n, chance=0.2)
    d.maybe("local_attention", 16, 128)
    d.maybe("head_dim", 8, 7, chance=0.1)
    head_dim = d.keys.get("head_dim") or max(4, hidden // 2)
    if d.rng.random() < 0.3:
        d.keys["rope_parameters"] = {}
        for kind in ("full_attention", "sliding_attention"):
            if d.rng.random() < 0.7:
                d.keys["rope_parameters"][kind] = d.rng.choice([None, rope_dict(d, head_dim)])
    if d.rng.random() < 0.15:
        d.keys["rope_scaling"] = rope_dict(d, head_dim, types=("default", "linear", "dynamic"))
    d.maybe("global_rope_theta", 160000.0)


BART_NAMES = {"d_model": ["hidden_size"], "encoder_attention_heads": ["num_attention_heads"],
              "encoder_layers": ["num_hidden_layers"]}


def seq2seq(d: Draw):
    text_keys(d, "activation_function")
    model_width = width(d, "d_model", "encoder_attention_heads", BART_NAMES)
    d.keys["decoder_attention_heads"] = d.rng.choice([h for h in (1, 2, 3, 4) if model_width % h == 0] * 8 + [5])
    d.keys[d.rng.choice(["encoder_layers", "encoder_layers", "num_hidden_layers"])] = d.rng.choice([0, 1, 2, 3])
    if d.rng.random() < 0.1:
        d.keys["encoder_layers"] = 2
    d.maybe("decoder_layers", 0, 1, 2, 3, chance=0.8)
    d.maybe("encoder_ffn_dim", 10, 33, chance=0.8)
    d.maybe("decoder_ffn_dim", 10, 21, chance=0.8)
    d.flags("scale_embedding", "use_cache", "is_encoder_decoder")
    d.maybe("encoder_layerdrop", 0.1)
    d.rarely("decoder_layers", None)


def gen_bart(d: Draw):
    seq2seq(d)
    d.maybe("max_position_embeddings", 8, 40)
    d.maybe("classifier_dropout", 0.2)


def gen_whisper(d: Draw):
    seq2seq(d)
    if d.rng.random() < 0.9:
        d.keys["pad_token_id"] = d.rng.choice([0, 5, None, -1])
    d.maybe("num_mel_bins", 5, 80)
    d.maybe("max_source_positions", 10, 31)
    d.maybe("max_target_positions", 10, 31)
    d.flags("use_weighted_layer_sum")
    d.maybe("classifier_proj_size", 7, 256)


def gen_t5(d: Draw):
    text_keys(d, "unused")
    d.keys[d.rng.choice(["d_model", "d_model", "hidden_size"])] = d.rng.choice([16, 25, 32])
    d.keys[d.rng.choice(["num_heads", "num_heads", "num_attention_heads"])] = d.rng.choice([1, 2, 3])
    d.keys[d.rng.choice(["num_layers", "num_layers", "num_hidden_layers"])] = d.rng.choice([0, 1, 2, 3])
    d.maybe("num_decoder_layers", 0, 1, 2, None)
    d.maybe("d_kv", 4, 9)
    d.maybe("head_dim", 5, chance=0.1)
    d.maybe("d_ff", 10, 33)
    d.maybe("relative_attention_num_buckets", 8, 33)
    d.maybe("feed_forward_proj", "relu", "gated-gelu", "gated-silu", "gelu", "gelu_new", "gated-relu6", "gated-gelu_new",
            "gated-prelu", chance=0.7)
    d.rarely("feed_forward_proj", "gated-gelu-new", "open-gelu", "gated", "gated-", "no_such", "-relu", "")
    d.maybe("is_gated_act", True, False, chance=0.15)
    d.maybe("dense_act_fn", "gelu_new", "silu", chance=0.15)
    d.flags("is_decoder", "is_encoder_decoder")
    d.maybe("n_positions", 512)


def gen_wav2vec2(d: Draw):
    width(d)
    layers(d)
    d.maybe("vocab_size", 1, 32, 50)
    d.maybe("intermediate_size", 10, 33, chance=0.9)
    d.maybe("hidden_act", *ACTIVATIONS)
    d.maybe("feat_extract_activation", *ACTIVATIONS)
    d.maybe("feat_extract_norm", "group", "layer", chance=0.8)
    d.rarely("feat_extract_norm", "batch")
    n = d.rng.choice([1, 2, 3])
    if d.rng.random() < 0.8:
        d.keys.update(conv_dim=[d.rng.choice([8, 12, 5]) for _ in range(n)], conv_stride=[2] * n,
                      conv_kernel=[d.rng.choice([1, 3, 4]) for _ in range(n)])
        if d.rng.random() < 0.08:
            d.keys[d.rng.choice(["conv_dim", "conv_stride", "conv_kernel"])] = d.rng.choice([[], [3] * (n + 1)])
        d.maybe("num_feat_extract_layers", n, chance=0.2)
        d.rarely("num_feat_extract_layers", n + 1)
    d.flags("conv_bias", "do_stable_layer_norm", "use_weighted_layer_sum", "apply_spec_augment")
    d.maybe("num_conv_pos_embeddings", 3, 8, 128)
    d.maybe("num_conv_pos_embedding_groups", 1, 2, 4, 5, 16, chance=0.95)
    d.maybe("mask_time_prob", 0.0, 0.1, 0)
    d.maybe("mask_feature_prob", 0.0, 0.1, 1)
    d.maybe("add_adapter", True, False, chance=0.4)
    d.maybe("output_hidden_size", 0, 12, None)
    d.maybe("num_adapter_layers", 0, 1, 2)
    d.maybe("adapter_kernel_size", 1, 3)
    d.maybe("adapter_attn_dim", 4, 16, None)
    d.maybe("num_codevectors_per_group", 3, 20)
    d.maybe("num_codevector_groups", 1, 2, 3)
    d.maybe("codevector_dim", 6, 10)
    d.maybe("proj_codevector_dim", 7, 256)
    d.maybe("classifier_proj_size", 7, 256)
    if d.rng.random() < 0.5:
        k = d.rng.choice([1, 2, 3])
        d.keys.update(tdnn_dim=[d.rng.choice([6, 9]) for _ in range(k)], tdnn_kernel=[3] * k, tdnn_dilation=[1] * k)
        d.rarely("tdnn_kernel", [3], [3] * 6)
    d.maybe("xvector_output_dim", 5, 512)
    labels(d)


def image_keys(d: Draw, pairs: bool):
    d.maybe("image_size", 16, 30, 64)
    d.maybe("patch_size", 4, 7, 14)
    d.maybe("num_channels", 1, 3)
    if pairs:
        d.maybe("image_size", [20, 33], chance=0.2)
        d.maybe("patch_size", [4, 5], chance=0.2)
    d.rarely("image_size", [32, 32], [32], None, 2)
    d.rarely("patch_size", [4, 4], 0, 100)


def gen_vit(d: Draw):
    width(d)
    layers(d)
    image_keys(d, True)
    d.maybe("intermediate_size", 10, 33, chance=0.9)
    d.maybe("hidden_act", *ACTIVATIONS)
    d.flags("qkv_bias")
    d.maybe("head_dim", 4, 7, chance=0.2)
    d.maybe("pooler_output_size", 0, 9, None)
    d.maybe("pooler_act", *ACTIVATIONS, chance=0.2)
    d.maybe("encoder_stride", 2, 4, chance=0.8)
    labels(d)


def vision_tower(d: Draw):
    width(d)
    layers(d)
    image_keys(d, False)
    d.maybe("intermediate_size", 10, 33, chance=0.9)
    d.maybe("hidden_act", *ACTIVATIONS)


def text_tower(d: Draw):
    width(d)
    layers(d)
    d.maybe("intermediate_size", 10, 33, chance=0.9)
    d.maybe("hidden_act", *ACTIVATIONS)
    d.maybe("vocab_size", 50, 97)
    d.maybe("max_position_embeddings", 8, 40)
    d.maybe("pad_token_id", 0, None, 1000)


def gen_clip_text(d: Draw):
    text_tower(d)
    d.maybe("projection_dim", 7, 512)


def gen_clip_vision(d: Draw):
    vision_tower(d)
    d.maybe("projection_dim", 7, 512)


def gen_siglip_text(d: Draw):
    text_tower(d)
    d.maybe("projection_size", 7, None)


def gen_siglip_vision(d: Draw):
    vision_tower(d)
    d.flags("vision_use_head")


def nested(d: Draw, key: str, generate, chance=0.9, **extra):
    """Puts the keys of another family under one key."""
    if d.rng.random() < chance:
        part = Draw(d.rng)
        generate(part)
        d.keys[key] = {**part.keys, **extra}


def gen_clip(d: Draw):
    nested(d, "text_config", gen_clip_text, model_type=d.rng.choice(["clip_text_model", "x"]))
    nested(d, "vision_config", gen_clip_vision)
    nested(d, "text_config_dict", gen_clip_text, chance=0.15)
    nested(d, "vision_config_dict", gen_clip_vision, chance=0.15)
    d.rarely("text_config", None, {})
    d.rarely("vision_config", None, [])
    d.maybe("projection_dim", 7, 512)
    d.maybe("logit_scale_init_value", 2.0)
    labels(d)


def gen_siglip(d: Draw):
    nested(d, "text_config", gen_siglip_text)
    nested(d, "vision_config", gen_siglip_vision)
    d.rarely("text_config", None, {})
    labels(d)


def vision_of_any_family(d: Draw):
    family = d.rng.choice([None, "clip_vision_model", "siglip_vision_model"])
    extra = {"model_type": family} if family else {}
    generate = gen_siglip_vision if family == "siglip_vision_model" else gen_clip_vision
    nested(d, "vision_config", generate, chance=0.95, **extra)


def gen_llava(d: Draw):
    vision_of_any_family(d)
    family = d.rng.choice([None, "llama", "mistral", "qwen2", "gemma3_text"])
    extra = {"model_type": family} if family else {}
    generate = {"gemma3_text": gen_gemma3_text, "qwen2": gen_qwen2}.get(family, gen_llama)
    nested(d, "text_config", generate, chance=0.98, **extra)
    d.flags("tie_word_embeddings", "multimodal_projector_bias")
    d.maybe("projector_hidden_act", *ACTIVATIONS, chance=0.3)
    d.maybe("vision_feature_layer", -1, [-2, -5], [1], chance=0.5)
    d.maybe("image_token_index", 10)


def gen_gemma3(d: Draw):
    vision_of_any_family(d)
    nested(d, "text_config", gen_gemma3_text, chance=0.98, model_type=d.rng.choice(["gemma3_text", "gemma3"]))
    d.flags("tie_word_embeddings")
    d.maybe("mm_tokens_per_image", 4, 256)
    d.rarely("tie_word_embeddings", None)
    labels(d)


def bert_heads(prefix: str, *more: str) -> list[str]:
    heads = ["MaskedLM", "SequenceClassification", "MultipleChoice", "TokenClassification", "QuestionAnswering"]
    return [f"{prefix}For{head}" for head in (*heads, *more)] + [prefix + "Model"]


FAMILIES = {
    "bert": ("BertConfig", [*bert_heads("Bert", "PreTraining", "NextSentencePrediction"), "BertLMHeadModel"], gen_bert),
    "roberta": ("RobertaConfig", bert_heads("Roberta", "CausalLM"), gen_bert),
    "xlm-roberta": ("XLMRobertaConfig", bert_heads("XLMRoberta", "CausalLM"), gen_bert),
    "deberta-v2": ("DebertaV2Config", bert_heads("DebertaV2"), gen_deberta),
    "modernbert": ("ModernBertConfig", bert_heads("ModernBert"), gen_modernbert),
    "bart": ("BartConfig", ["BartForConditionalGeneration", "BartModel", "BartForSequenceClassification",
                            "BartForQuestionAnswering", "BartForCausalLM"], gen_bart),
    "t5": ("T5Config", ["T5ForConditionalGeneration", "T5Model", "T5EncoderModel", "T5ForSequenceClassification",
                        "T5ForTokenClassification", "T5ForQuestionAnswering"], gen_t5),
    "whisper": ("WhisperConfig", ["WhisperForConditionalGeneration", "WhisperModel", "WhisperForCausalLM",
                                  "WhisperForAudioClassification"], gen_whisper),
    "wav2vec2": ("Wav2Vec2Config", ["Wav2Vec2ForCTC", "Wav2Vec2Model", "Wav2Vec2ForPreTraining", "Wav2Vec2ForXVector",
                                    "Wav2Vec2ForSequenceClassification", "Wav2Vec2ForAudioFrameClassification"],
                 gen_wav2vec2),
    "vit": ("ViTConfig", ["ViTForImageClassification", "ViTModel", "ViTForMaskedImageModeling"], gen_vit),
    "clip": ("CLIPConfig", ["CLIPModel", "CLIPForImageClassification"], gen_clip),
    "clip_text_model": ("CLIPTextConfig", ["CLIPTextModel", "CLIPTextModelWithProjection"], gen_clip_text),
    "clip_vision_model": ("CLIPVisionConfig", ["CLIPVisionModel", "CLIPVisionModelWithProjection"], gen_clip_vision),
    "siglip": ("SiglipConfig", ["SiglipModel", "SiglipForImageClassification"], gen_siglip),
    "siglip_text_model": ("SiglipTextConfig", ["SiglipTextModel"], gen_siglip_text),
    "siglip_vision_model": ("SiglipVisionConfig", ["SiglipVisionModel"], gen_siglip_vision),
    "llava": ("LlavaConfig", ["LlavaForConditionalGeneration", "LlavaModel"], gen_llava),
    "gemma3": ("Gemma3Config", ["Gemma3ForConditionalGeneration", "Gemma3Model", "Gemma3ForSequenceClassification"],
               gen_gemma3),
}

if __name__ == "__main__":
    sys.exit(main(FAMILIES))
