"""The models of the stored recordings, as functions for `python -m fsdplan record --import zoo:NAME`."""

import torch
import torch.nn.functional as F
from torch import nn


class LoRALinear(nn.Module):
    """A frozen linear layer and a trainable update of rank r."""

    def __init__(self, base: nn.Linear, r: int = 4):
        super().__init__()
        self.base = base
        base.requires_grad_(False)
        self.lora_a = nn.Linear(base.in_features, r, bias=False)
        self.lora_b = nn.Linear(r, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x))


class MLPBlock(nn.Module):
    def __init__(self, d: int, h: int):
        super().__init__()
        self.up, self.down = nn.Linear(d, h), nn.Linear(h, d)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class MLPStack(nn.Module):
    def __init__(self, n=4, d=32, h=80):
        super().__init__()
        self.blocks = nn.ModuleList([MLPBlock(d, h) for _ in range(n)])
        self.head = nn.Linear(d, 10)

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.head(x)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 10, 3, padding=1), nn.BatchNorm2d(10), nn.ReLU())
        self.stages = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(10, 10, 3, padding=1, bias=False), nn.BatchNorm2d(10), nn.ReLU())
             for _ in range(3)])
        self.fc = nn.Linear(10, 7)

    def forward(self, x):
        x = self.stem(x)
        for s in self.stages:
            x = x + s(x)
        return self.fc(x.mean((2, 3)))


class Reused(nn.Module):
    """One block called three times in one forward."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(16, 32)
        self.block = MLPBlock(32, 48)
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        x = self.inp(x)
        for _ in range(3):
            x = self.block(x)
        return self.out(x)


class Unused(nn.Module):
    """`skip` never runs, the result of `side` is dropped, `extra` is never read."""

    def __init__(self):
        super().__init__()
        self.a, self.skip, self.side, self.b = (MLPBlock(16, 24) for _ in range(4))
        self.partial = nn.Linear(16, 16)
        self.extra = nn.Parameter(torch.zeros(5))

    def forward(self, x):
        x = self.a(x)
        self.side(x)
        return self.partial(self.b(x))


class NNT(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(97, 32)
        self.tr = nn.Transformer(32, 4, 2, 2, 60, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, 97)

    def forward(self, src, tgt):
        return self.out(self.tr(self.emb(src), self.emb(tgt)))


class Branchy(nn.Module):
    """Two towers that meet at the end."""

    def __init__(self):
        super().__init__()
        self.left = nn.ModuleList([MLPBlock(16, 24) for _ in range(2)])
        self.right = nn.ModuleList([MLPBlock(16, 40) for _ in range(2)])
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        a = b = x
        for m in self.left:
            a = m(a)
        for m in self.right:
            b = m(b)
        return self.out(a * b)


def tokens(vocabulary, batch, length):
    return torch.randint(0, vocabulary, (batch, length), generator=torch.Generator().manual_seed(0))


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def mlp():
    return MLPStack(), lambda: noise(4, 32)


def conv():
    return ConvNet(), lambda: noise(2, 3, 8, 8)


def reused():
    return Reused(), lambda: noise(4, 16)


def unused():
    return Unused(), lambda: noise(4, 16)


def branchy():
    return Branchy(), lambda: noise(4, 16)


def nnt():
    return NNT(), lambda: (tokens(97, 2, 10), tokens(97, 2, 7))


def llama(**changes):
    import transformers as T

    config = T.LlamaConfig(vocab_size=257, hidden_size=64, intermediate_size=172, num_hidden_layers=4,
                           num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, use_cache=False,
                           attn_implementation="sdpa", **changes)
    return T.LlamaForCausalLM(config), (), {"input_ids": tokens(257, 2, 16)}


def llama_tied():
    return llama(tie_word_embeddings=True)


def llama_lora():
    model, args, kwargs = llama()
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, LoRALinear(getattr(layer.self_attn, name)))
    return model, args, kwargs


def llama_frozen():
    model, args, kwargs = llama()
    for module in (model.model.embed_tokens, model.model.layers[0], model.model.layers[1]):
        module.requires_grad_(False)
    return model, args, kwargs


def gpt2():
    import transformers as T

    config = T.GPT2Config(vocab_size=101, n_positions=32, n_embd=48, n_layer=3, n_head=4, resid_pdrop=0.0,
                          embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="sdpa")
    return T.GPT2LMHeadModel(config), (), {"input_ids": tokens(101, 2, 16)}


def t5():
    import transformers as T

    config = T.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=70, num_layers=2, num_heads=4, dropout_rate=0.0,
                        use_cache=False, tie_word_embeddings=True)
    return T.T5ForConditionalGeneration(config), (), {"input_ids": tokens(99, 2, 12),
                                                      "decoder_input_ids": tokens(99, 2, 6)}


def mixtral():
    import transformers as T

    config = T.MixtralConfig(vocab_size=131, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
                             max_position_embeddings=64, use_cache=False, attn_implementation="sdpa")
    return T.MixtralForCausalLM(config), (), {"input_ids": tokens(131, 2, 16)}


def vit():
    import transformers as T

    config = T.ViTConfig(hidden_size=36, num_hidden_layers=3, num_attention_heads=4, intermediate_size=70,
                         image_size=16, patch_size=4, num_labels=10, hidden_dropout_prob=0.0,
                         attention_probs_dropout_prob=0.0, attn_implementation="sdpa")
    return T.ViTForImageClassification(config), (), {"pixel_values": noise(2, 3, 16, 16)}


def albert():
    import transformers as T

    config = T.AlbertConfig(vocab_size=90, embedding_size=16, hidden_size=32, num_hidden_layers=3,
                            num_attention_heads=4, intermediate_size=60, max_position_embeddings=32,
                            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa")
    return T.AlbertForMaskedLM(config), (), {"input_ids": tokens(90, 2, 12)}


def bert():
    import transformers as T

    config = T.BertConfig(vocab_size=119, hidden_size=40, num_hidden_layers=3, num_attention_heads=4,
                          intermediate_size=90, max_position_embeddings=32, hidden_dropout_prob=0.0,
                          attention_probs_dropout_prob=0.0, attn_implementation="sdpa")
    return T.BertForMaskedLM(config), (), {"input_ids": tokens(119, 2, 12)}


def qwen2():
    import transformers as T

    config = T.Qwen2Config(vocab_size=203, hidden_size=48, intermediate_size=100, num_hidden_layers=3,
                           num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                           tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa")
    return T.Qwen2ForCausalLM(config), (), {"input_ids": tokens(203, 2, 16)}


def gemma2():
    import transformers as T

    config = T.Gemma2Config(vocab_size=150, hidden_size=40, intermediate_size=88, num_hidden_layers=3,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=10, max_position_embeddings=64,
                            use_cache=False, attn_implementation="eager")
    return T.Gemma2ForCausalLM(config), (), {"input_ids": tokens(150, 2, 16)}


def gpt_neox():
    import transformers as T

    config = T.GPTNeoXConfig(vocab_size=110, hidden_size=40, intermediate_size=100, num_hidden_layers=3,
                             num_attention_heads=4, max_position_embeddings=64, use_cache=False,
                             attn_implementation="sdpa")
    return T.GPTNeoXForCausalLM(config), (), {"input_ids": tokens(110, 2, 16)}


def whisper():
    import transformers as T

    config = T.WhisperConfig(vocab_size=80, num_mel_bins=8, encoder_layers=2, decoder_layers=2, d_model=32,
                             encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=60,
                             decoder_ffn_dim=60, max_source_positions=16, max_target_positions=16, dropout=0.0,
                             use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                             decoder_start_token_id=1, attn_implementation="sdpa")
    return T.WhisperForConditionalGeneration(config), (), {"input_features": noise(2, 8, 32),
                                                           "decoder_input_ids": tokens(80, 2, 8)}
