"""The models of the recordings of activations (tests/golden/runtime/act_*.json): real sizes, few layers."""
import contextlib

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}

SIZES = {
    "llama3-8b": ("llama", dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                                num_key_value_heads=8, vocab_size=128256)),
    "llama3-70b": ("llama", dict(hidden_size=8192, intermediate_size=28672, num_attention_heads=64,
                                 num_key_value_heads=8, vocab_size=128256)),
    "llama2-7b": ("llama", dict(hidden_size=4096, intermediate_size=11008, num_attention_heads=32,
                                num_key_value_heads=32, vocab_size=32000)),
    "qwen2.5-7b": ("qwen2", dict(hidden_size=3584, intermediate_size=18944, num_attention_heads=28,
                                 num_key_value_heads=4, vocab_size=152064)),
    "mistral-7b": ("mistral", dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                                   num_key_value_heads=8, vocab_size=32768, sliding_window=None)),
    "gemma2-9b": ("gemma2", dict(hidden_size=3584, intermediate_size=14336, num_attention_heads=16,
                                 num_key_value_heads=8, head_dim=256, vocab_size=256000)),
    "gpt2-xl": ("gpt2", dict(n_embd=1600, n_head=25, vocab_size=50257, n_positions=8192)),
    "gpt-neox-20b": ("gpt_neox", dict(hidden_size=6144, intermediate_size=24576, num_attention_heads=64,
                                      vocab_size=50432)),
    "bert-large": ("bert", dict(hidden_size=1024, num_attention_heads=16, intermediate_size=4096,
                                vocab_size=30522, max_position_embeddings=8192)),
    "t5-large": ("t5", dict(d_model=1024, d_kv=64, d_ff=4096, num_heads=16, vocab_size=32128)),
    "vit-l-16": ("vit", dict(hidden_size=1024, num_attention_heads=16, intermediate_size=4096, image_size=224,
                             patch_size=16, num_labels=1000)),
    "mixtral-8x7b": ("mixtral", dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                                     num_key_value_heads=8, vocab_size=32000)),
    "llama-tiny": ("llama", dict(hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2,
                                 vocab_size=256)),
    "gpt2-tiny": ("gpt2", dict(n_embd=64, n_head=4, vocab_size=256, n_positions=64)),
    "bert-tiny": ("bert", dict(hidden_size=64, num_attention_heads=4, intermediate_size=160, vocab_size=256,
                               max_position_embeddings=64)),
    "t5-tiny": ("t5", dict(d_model=64, d_kv=16, d_ff=160, num_heads=4, vocab_size=256)),
    "vit-tiny": ("vit", dict(hidden_size=64, num_attention_heads=4, intermediate_size=160, image_size=32, patch_size=8,
                             num_labels=10)),
}
CLASSES = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
           "mistral": ("MistralConfig", "MistralForCausalLM"), "gemma2": ("Gemma2Config", "Gemma2ForCausalLM"),
           "gpt2": ("GPT2Config", "GPT2LMHeadModel"), "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM"),
           "bert": ("BertConfig", "BertForMaskedLM"), "t5": ("T5Config", "T5ForConditionalGeneration"),
           "vit": ("ViTConfig", "ViTForImageClassification"), "mixtral": ("MixtralConfig", "MixtralForCausalLM")}


def build(name, *, layers=2, attn="sdpa", dropout=0.0, dtype="bf16", batch=1, seq=2048, ac=None, **_):
    """(model, keyword arguments); call it under a FakeTensorMode for the large ones."""
    import transformers

    kind, sizes = SIZES[name]
    options = dict(sizes)
    if kind in ("llama", "qwen2", "mistral", "gemma2", "mixtral", "gpt_neox"):
        options.update(num_hidden_layers=layers, max_position_embeddings=131072, use_cache=False)
    if kind == "gpt2":
        options.update(n_layer=layers, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, use_cache=False)
    if kind in ("bert", "vit"):
        options.update(num_hidden_layers=layers, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    if kind == "t5":
        options.update(num_layers=layers, dropout_rate=dropout, use_cache=False)
    else:  # the soft cap of gemma2 has no sdpa
        options["attn_implementation"] = "eager" if kind == "gemma2" else attn
    config, model = (getattr(transformers, part) for part in CLASSES[kind])
    with _default_dtype(DTYPES[dtype]), _no_initialization(transformers):
        made = model(config(**options))
    if (ac or {}).get("mode") == "hf":
        made.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": bool(ac.get("reentrant"))})
    made.train()
    if kind == "vit":
        side = sizes["image_size"]
        return made, {"pixel_values": torch.zeros(batch, 3, side, side, dtype=DTYPES[dtype])}
    ids = torch.zeros(batch, seq, dtype=torch.int64)
    return made, {"input_ids": ids, "decoder_input_ids": ids.clone()} if kind == "t5" else {"input_ids": ids}


@contextlib.contextmanager
def _default_dtype(dtype):
    """As from_pretrained(dtype=...): what a model makes as float32 by name stays so."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _no_initialization(transformers):
    before = transformers.PreTrainedModel.initialize_weights
    transformers.PreTrainedModel.initialize_weights = lambda self, *_, **__: None
    try:
        yield
    finally:
        transformers.PreTrainedModel.initialize_weights = before
