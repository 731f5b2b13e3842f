"""Small models of many kinds, most from transformers: functions for `--import real_models:NAME`."""
import torch
import torch.nn.functional as F
import transformers as T
from torch import nn


def ids(vocabulary, *shape):
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(0))


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


DECODER = dict(vocab_size=257, hidden_size=48, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=64, use_cache=False, bos_token_id=1, eos_token_id=2,
               pad_token_id=0)


def llama():
    batch = {"input_ids": ids(257, 2, 16), "labels": ids(257, 2, 16)}
    return T.LlamaForCausalLM(T.LlamaConfig(**DECODER)), (), batch


def llama_lora():
    import peft

    base, args, batch = llama()
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1,
                                                      task_type="CAUSAL_LM"))
    return model, (), batch


def mistral():
    config = T.MistralConfig(**DECODER, sliding_window=8)
    return T.MistralForCausalLM(config), (), {"input_ids": ids(257, 2, 16), "labels": ids(257, 2, 16)}


def qwen3():
    config = T.Qwen3Config(**DECODER, head_dim=16)
    return T.Qwen3ForCausalLM(config), (), {"input_ids": ids(257, 2, 16), "labels": ids(257, 2, 16)}


def mixtral():
    config = T.MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2)
    return T.MixtralForCausalLM(config), (), {"input_ids": ids(257, 2, 16)}


def gemma3():
    config = T.Gemma3TextConfig(**DECODER | dict(num_hidden_layers=6), head_dim=16, sliding_window=8)
    return T.Gemma3ForCausalLM(config), (), {"input_ids": ids(257, 2, 16)}


def gpt2():
    config = T.GPT2Config(vocab_size=101, n_positions=32, n_embd=48, n_layer=3, n_head=4, use_cache=False, bos_token_id=1,
                          eos_token_id=2)
    return T.GPT2LMHeadModel(config), (), {"input_ids": ids(101, 2, 16), "labels": ids(101, 2, 16)}


def bert():
    config = T.BertConfig(vocab_size=101, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=112,
                          max_position_embeddings=32)
    batch = {"input_ids": ids(101, 2, 16), "attention_mask": torch.ones(2, 16, dtype=torch.int64), "labels": ids(101, 2, 16)}
    return T.BertForMaskedLM(config), (), batch


def t5():
    config = T.T5Config(vocab_size=101, d_model=32, d_kv=8, d_ff=70, num_layers=2, num_heads=4, use_cache=False,
                        decoder_start_token_id=0)
    batch = {"input_ids": ids(101, 2, 12), "labels": ids(101, 2, 6)}
    return T.T5ForConditionalGeneration(config), (), batch


def bart():
    config = T.BartConfig(vocab_size=101, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                          decoder_attention_heads=4, encoder_ffn_dim=70, decoder_ffn_dim=70, max_position_embeddings=32,
                          use_cache=False, decoder_start_token_id=2)
    batch = {"input_ids": ids(101, 2, 12), "labels": ids(101, 2, 6)}
    return T.BartForConditionalGeneration(config), (), batch


def vit():
    config = T.ViTConfig(hidden_size=36, num_hidden_layers=3, num_attention_heads=4, intermediate_size=70, image_size=16,
                         patch_size=4, num_labels=10)
    batch = {"pixel_values": noise(2, 3, 16, 16), "labels": ids(10, 2)}
    return T.ViTForImageClassification(config), (), batch


def swin():
    config = T.SwinConfig(image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=10)
    batch = {"pixel_values": noise(2, 3, 32, 32), "labels": ids(10, 2)}
    return T.SwinForImageClassification(config), (), batch


def clip():
    text = dict(vocab_size=101, hidden_size=32, intermediate_size=70, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=16, bos_token_id=1, eos_token_id=2)
    vision = dict(hidden_size=36, intermediate_size=70, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4)
    config = T.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
    batch = {"input_ids": ids(101, 3, 10), "pixel_values": noise(3, 3, 16, 16), "return_loss": True}
    model = T.CLIPModel(config)
    model.logit_scale = nn.Parameter(model.logit_scale.detach()[None])  # FSDP shards no scalars
    return model, (), batch


def whisper():
    config = T.WhisperConfig(vocab_size=101, num_mel_bins=10, d_model=32, encoder_layers=2, decoder_layers=2,
                             encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=70, decoder_ffn_dim=70,
                             max_source_positions=16, max_target_positions=16, use_cache=False, pad_token_id=0, bos_token_id=1,
                             eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)
    batch = {"input_features": noise(2, 10, 32), "labels": ids(101, 2, 8)}
    return T.WhisperForConditionalGeneration(config), (), batch


def mamba():
    config = T.MambaConfig(vocab_size=101, hidden_size=32, state_size=4, num_hidden_layers=3, time_step_rank=4, use_cache=False)
    return T.MambaForCausalLM(config), (), {"input_ids": ids(101, 2, 8)}


def resnet():
    config = T.ResNetConfig(embedding_size=8, hidden_sizes=[12, 20], depths=[2, 2], num_labels=10)
    batch = {"pixel_values": noise(2, 3, 32, 32), "labels": ids(10, 2)}
    return T.ResNetForImageClassification(config), (), batch


def convnext():
    config = T.ConvNextConfig(num_stages=2, hidden_sizes=[12, 20], depths=[2, 2], num_labels=10, drop_path_rate=0.0)
    batch = {"pixel_values": noise(2, 3, 32, 32), "labels": ids(10, 2)}
    return T.ConvNextForImageClassification(config), (), batch


class Residual(nn.Module):
    """Two convolutions with a time embedding in between, as in diffusion models."""

    def __init__(self, inp, out, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inp), nn.Conv2d(inp, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(4, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(inp, out, 1) if inp != out else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h + self.time(F.silu(t))[:, :, None, None])))
        return h + self.skip(x)


class Attention2d(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(4, width), nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        h = self.norm(x).flatten(2).transpose(1, 2)
        h = self.attention(h, h, h, need_weights=False)[0]
        return x + h.transpose(1, 2).view_as(x)


class UNet(nn.Module):
    """What goes down is kept until its counterpart on the way up."""

    def __init__(self, widths=(8, 16, 24), time=16):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, time), nn.SiLU(), nn.Linear(time, time))
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        pairs = list(zip(widths, widths[1:]))
        self.down = nn.ModuleList(Residual(a, b, time) for a, b in pairs)
        self.shrink = nn.ModuleList(nn.Conv2d(b, b, 3, stride=2, padding=1) for _, b in pairs)
        self.middle, self.attention = Residual(widths[-1], widths[-1], time), Attention2d(widths[-1])
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, b, 2, stride=2) for _, b in reversed(pairs))
        self.up = nn.ModuleList(Residual(2 * b, a, time) for a, b in reversed(pairs))
        self.out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, image, step):
        angles = step[:, None] * torch.exp(-torch.arange(4.0))
        t = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        x, kept = self.stem(image), []
        for block, shrink in zip(self.down, self.shrink):
            kept.append(block(x, t))
            x = shrink(kept[-1])
        x = self.attention(self.middle(x, t))
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat([grow(x), kept.pop()], 1), t)
        return self.out(x)


def unet():
    return UNet(), (), {"image": noise(2, 3, 16, 16), "step": torch.tensor([1.0, 7.0])}


#: Name -> patterns of the modules that become units of FSDP
UNITS = {
    "llama": ["model.layers.*"],
    "llama_lora": ["base_model.model.model.layers.*"],
    "mistral": ["model.layers.*"],
    "qwen3": ["model.layers.*"],
    "mixtral": ["model.layers.*"],
    "gemma3": ["model.layers.*"],
    "gpt2": ["transformer.h.*"],
    "bert": ["bert.encoder.layer.*"],
    "t5": ["encoder.block.*", "decoder.block.*"],
    "bart": ["model.encoder.layers.*", "model.decoder.layers.*"],
    "vit": ["vit.layers.*"],
    "swin": ["swin.encoder.layers.*.blocks.*"],
    "clip": ["text_model.encoder.layers.*", "vision_model.encoder.layers.*"],
    "whisper": ["model.encoder.layers.*", "model.decoder.layers.*"],
    "mamba": ["backbone.layers.*"],
    "resnet": ["resnet.encoder.stages.*"],
    "convnext": ["convnext.encoder.stages.*"],
    "unet": ["down.*", "middle", "up.*"],
}
