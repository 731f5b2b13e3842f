#!/usr/bin/env python3
"""Builds random small configurations of every model family in transformers and in fsdplan and compares them.

    compare_families.py --list-tree build/dev/tests/list_tree [--family llama ...] [--count 40] [--seed 1]

Each configuration is written once as a user would write it and once as transformers saves it. Compared are
every module (class, bases, slot), every parameter and buffer (name, shape, dtype, persistence, ties), the
classes that are not to be split, and whether the configuration is refused. Needs torch and transformers.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")
import torch  # noqa: E402
import transformers  # noqa: E402

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


# --------------------------------------------------------------------------- #
# Lines that describe a model: tests/support/tree_listing.hpp writes the same
# --------------------------------------------------------------------------- #
def class_name(cls) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def tree_listing(model) -> list[str]:
    out, tensors, modules = [], {}, {}

    def describe(tensor) -> str:
        grad = "" if tensor.requires_grad else " frozen"
        return f"{str(tensor.dtype).removeprefix('torch.')}{grad} [{''.join(f'{n},' for n in tensor.shape)}]"

    def visit(module, path):
        if id(module) in modules:
            out.append(f"{path} = {modules[id(module)]}")
            return
        modules[id(module)] = path
        bases = "".join(f" < {class_name(c)}" for c in type(module).__mro__[1:] if c is not object)
        out.append(f"{path} {class_name(type(module))}{bases}")
        for kind, table in (("parameter", module._parameters), ("buffer", module._buffers)):
            for name, tensor in table.items():
                if tensor is None:
                    continue
                full = f"{path}.{name}"
                seen = tensors.setdefault(id(tensor), full)
                persistence = "non-persistent " if name in module._non_persistent_buffers_set else ""
                out.append(f"{full} {kind} {persistence}" + (describe(tensor) if seen == full else f"= {seen}"))
        for name, child in module._modules.items():
            if child is not None:
                visit(child, f"{path}.{name}" if path else name)

    visit(model, "")
    return out


# --------------------------------------------------------------------------- #
# Random configurations
# --------------------------------------------------------------------------- #
class Draw:
    """Collects the keys of one random configuration."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.keys: dict = {}

    def key(self, name, *values):
        """Sets the key to one of the values."""
        self.keys[name] = self.rng.choice(values)
        return self.keys[name]

    def maybe(self, name, *values, chance=0.5):
        """Sets the key, or leaves it to the class default."""
        if self.rng.random() < chance:
            self.key(name, *values)

    def rarely(self, name, *values):
        self.maybe(name, *values, chance=0.06)

    def flags(self, *names):
        for name in names:
            self.maybe(name, True, False)


ACTIVATIONS = ("silu", "gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "swish", "relu6", "quick_gelu", "prelu", "xielu",
               "leaky_relu", "gelu_10", "relu2", "tanh", "mish", "linear", "laplace", "sqrtsoftplus", "no_such")


def rope_dict(d: Draw, head_dim: int, types=("default", "linear", "dynamic", "yarn", "longrope", "llama3",
                                              "proportional", "su", "no_such")) -> dict:
    kind = d.rng.choice(types)
    rope = {d.rng.choice(["rope_type", "rope_type", "type"]): kind}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        rope["factor"] = d.rng.choice([2.0, 4])
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
    if kind == "yarn" and d.rng.random() < 0.5:
        rope["original_max_position_embeddings"] = 16
    if kind in ("longrope", "su", "yarn"):
        n = d.rng.choice([head_dim // 2] * 5 + [head_dim // 4, 1, 3])
        rope.update(short_factor=[1.0] * n, long_factor=[2.0] * n)
    if d.rng.random() < 0.3:
        rope["partial_rotary_factor"] = d.rng.choice([0.25, 0.5, 0.4, 0.75, 1.0])
    if d.rng.random() < 0.1:
        rope.pop(d.rng.choice(list(rope)))
    return rope


def rope(d: Draw, head_dim: int, partial_keys=("partial_rotary_factor",)):
    if d.rng.random() < 0.3:
        d.keys[d.rng.choice(["rope_scaling", "rope_parameters"])] = rope_dict(d, head_dim)
    d.rarely("rope_scaling", None, {})
    for key in partial_keys:
        d.maybe(key, 0.25, 0.5, 0.4, 0.3, 1.0, 0.0, chance=0.25)
    d.maybe("rope_theta", 10000, 5e5)
    d.maybe("max_position_embeddings", 64, 128, 2048)


def layers(d: Draw, key="num_hidden_layers", most=4) -> int:
    return d.key(key, *range(1, most + 1), *([0] if d.rng.random() < 0.1 else []))


def layer_types(d: Draw, n: int, chance=0.3, kinds=("full_attention", "sliding_attention")):
    if d.rng.random() < chance:
        d.keys["layer_types"] = [d.rng.choice(kinds) for _ in range(n)]
        if d.rng.random() < 0.1:
            d.keys["layer_types"] = d.rng.choice([d.keys["layer_types"] + ["full_attention"], [], ["nonsense"] * n,
                                                  ["attention"] * n, ["conv"] * n, None])


def common(d: Draw, act="hidden_act", vocab=(50, 97, 130)):
    d.key("vocab_size", *vocab)
    d.maybe(act, *ACTIVATIONS)
    d.flags("tie_word_embeddings")
    d.maybe("pad_token_id", 0, 1, 7, None, -1, chance=0.3)
    d.rarely("pad_token_id", 10_000)
    d.maybe("id2label", {"0": "a"}, {"0": "a", "1": "b", "2": "c"}, None, chance=0.2)
    d.maybe("num_labels", 1, 2, 5, chance=0.2)
    d.maybe("token_classification_bias", True, False, chance=0.2)


def llama_like(d: Draw, head_dim=(8, 6, 16, 4), kv_null=True, head_dim_null=True, odd_hidden=False):
    common(d)
    heads = d.key("num_attention_heads", 1, 2, 4, 6)
    width = d.rng.choice([4, 8, 6, 12])
    d.keys["hidden_size"] = heads * width + (d.rng.choice([1, 2, 3]) if odd_hidden or d.rng.random() < 0.06 else 0)
    d.key("intermediate_size", 10, 33, 64)
    n = layers(d)
    d.maybe("num_key_value_heads", *[k for k in (1, 2, 3, 4, 6) if heads % k == 0 or d.rng.random() < 0.1],
            *([None] if kv_null else []), chance=0.7)
    d.rarely("num_key_value_heads", None)
    d.maybe("head_dim", *head_dim, *([None] if head_dim_null else []), chance=0.5)
    d.rarely("head_dim", None, 7, 3)
    rope(d, d.keys.get("head_dim") or d.keys["hidden_size"] // heads)
    d.flags("attention_bias")
    layer_types(d, n, chance=0.15)
    if n == 0:  # then nothing reads what must not be null, and transformers does not notice
        for key in ("num_key_value_heads", "head_dim"):
            if d.keys.get(key, 0) is None:
                del d.keys[key]
    return n


def gen_llama(d):
    llama_like(d)
    d.flags("mlp_bias")


def gen_mistral(d):
    llama_like(d, kv_null=False)
    d.maybe("sliding_window", 16, None)


def gen_mixtral(d):
    llama_like(d, kv_null=False)
    d.maybe("num_local_experts", 1, 3, 4, 0)
    d.maybe("num_experts", 2, 5, chance=0.2)


def gen_qwen2(d):
    n = llama_like(d, head_dim_null=False)
    d.flags("use_sliding_window")
    layer_types(d, n)


def gen_qwen3(d):
    gen_qwen2(d)


def gen_qwen2_moe(d):
    n = llama_like(d, kv_null=False, head_dim_null=False)
    d.flags("qkv_bias")
    moe_keys(d, n)
    d.maybe("shared_expert_intermediate_size", 5, 24)
    layer_types(d, n)


def moe_keys(d, n):
    d.key("moe_intermediate_size", 6, 20)
    d.maybe("num_experts", 0, 1, 4, 6, chance=0.8)
    d.maybe("num_local_experts", 3, chance=0.15)
    d.maybe("decoder_sparse_step", 1, 2, 3)
    d.maybe("mlp_only_layers", [], [0], [1, 2], None)


def gen_qwen3_moe(d):
    n = llama_like(d, kv_null=False, head_dim_null=False)
    moe_keys(d, n)


def gen_gemma(d):
    llama_like(d, kv_null=False, head_dim_null=False)


def gen_gemma2(d):
    n = llama_like(d, kv_null=False, head_dim_null=False)
    d.maybe("hidden_activation", *ACTIVATIONS)
    layer_types(d, n)


def gen_gemma3_text(d):
    n = llama_like(d, kv_null=False, head_dim_null=False)
    d.maybe("hidden_activation", *ACTIVATIONS)
    d.maybe("sliding_window_pattern", 1, 2, 3, 6, chance=0.3)
    layer_types(d, n)
    d.keys.pop("partial_rotary_factor", None)
    d.keys.pop("rope_parameters", None)
    head_dim = d.keys.get("head_dim") or 256
    if d.rng.random() < 0.4:
        d.keys["rope_parameters"] = {}
        for kind in ("full_attention", "sliding_attention"):
            if d.rng.random() < 0.7:
                d.keys["rope_parameters"][kind] = d.rng.choice([None, rope_dict(d, head_dim)])


def gen_phi(d):
    llama_like(d, head_dim_null=False)
    d.flags("qk_layernorm")


def gen_phi3(d):
    llama_like(d, head_dim_null=False)
    if d.rng.random() < 0.8:
        d.keys["pad_token_id"] = d.rng.choice([0, None])
    if d.rng.random() < 0.3:
        head_dim = d.keys.get("head_dim") or d.keys["hidden_size"] // d.keys["num_attention_heads"]
        d.keys["rope_scaling"] = rope_dict(d, head_dim, types=("longrope", "su", "yarn"))
    d.keys.pop("head_dim", None) if d.rng.random() < 0.5 else None


def gen_starcoder2(d):
    llama_like(d, kv_null=False)
    d.flags("use_bias")


def gen_olmo2(d):
    llama_like(d, head_dim_null=False)


def gen_olmoe(d):
    llama_like(d, head_dim_null=False)
    d.maybe("num_experts", 2, 4, chance=0.9)
    d.maybe("num_local_experts", 3, chance=0.15)


def gen_gpt_oss(d):
    n = llama_like(d, kv_null=False, head_dim_null=False)
    d.maybe("num_local_experts", 2, 4, chance=0.9)
    d.maybe("num_experts", 3, chance=0.15)
    layer_types(d, n)


def latent(d):
    common(d)
    heads = d.key("num_attention_heads", 1, 2, 4)
    d.keys["hidden_size"] = heads * d.rng.choice([4, 8, 12]) + (d.rng.random() < 0.06)
    d.key("intermediate_size", 10, 33)
    n = layers(d)
    d.maybe("num_key_value_heads", 1, 2, 4, None)
    d.maybe("q_lora_rank", 5, 8, None, chance=0.8)
    d.key("kv_lora_rank", 4, 6)
    d.maybe("qk_rope_head_dim", 4, 8, chance=0.8)
    d.rarely("qk_rope_head_dim", 7, None)
    d.maybe("qk_nope_head_dim", 4, 10, chance=0.8)
    d.maybe("v_head_dim", 4, 9, chance=0.8)
    d.key("moe_intermediate_size", 6, 20)
    d.maybe("n_routed_experts", 2, 5, chance=0.9)
    d.maybe("num_experts", 3, chance=0.1)
    d.maybe("num_local_experts", 6, chance=0.1)
    d.maybe("n_shared_experts", 0, 1, 2)
    d.maybe("first_k_dense_replace", 0, 1, 2, n)
    d.flags("attention_bias", "mlp_bias")
    rope(d, d.keys.get("qk_rope_head_dim") or 64)
    d.maybe("head_dim", 6, 16, chance=0.1)


def gen_gpt_neox(d):
    common(d)
    heads = d.key("num_attention_heads", 1, 2, 4)
    d.keys["hidden_size"] = heads * d.rng.choice([4, 8, 6, 7]) + (d.rng.random() < 0.06)
    d.key("intermediate_size", 10, 33)
    layers(d)
    d.flags("attention_bias", "use_parallel_residual")
    rope(d, d.keys["hidden_size"] // heads, ("partial_rotary_factor", "rotary_pct"))
    d.maybe("rotary_emb_base", 10000, chance=0.2)
    d.rarely("head_dim", 8, 7)


def gpt_names(d, spellings):
    """Each size under one of its spellings, sometimes under both."""
    for names, values in spellings:
        value = d.rng.choice(values)
        d.keys[d.rng.choice(names)] = value
        if d.rng.random() < 0.1:
            d.keys[names[0]] = value * 2


def gen_gpt2(d):
    common(d, "activation_function")
    gpt_names(d, [(("n_embd", "hidden_size"), (24, 48, 25)), (("n_layer", "num_hidden_layers"), (1, 2, 3, 0)),
                  (("n_head", "num_attention_heads"), (1, 2, 4)),
                  (("n_positions", "max_position_embeddings"), (16, 33))])
    d.maybe("n_inner", 10, 50, None)
    d.maybe("n_ctx", 32)
    d.flags("add_cross_attention")


def gen_gptj(d):
    common(d, "activation_function")
    gpt_names(d, [(("n_embd", "hidden_size"), (24, 48, 25)), (("n_layer", "num_hidden_layers"), (1, 2, 3, 0)),
                  (("n_head", "num_attention_heads"), (1, 2, 4)),
                  (("n_positions", "max_position_embeddings"), (16, 33))])
    d.maybe("n_inner", 10, 50, None)
    d.maybe("rotary_dim", 4, 5, 8, 0)


def gen_opt(d):
    common(d, "activation_function")
    heads = d.key("num_attention_heads", 1, 2, 4)
    d.keys["hidden_size"] = heads * d.rng.choice([4, 8, 6, 7]) + (d.rng.random() < 0.06)
    layers(d)
    d.key("ffn_dim", 10, 33)
    d.maybe("word_embed_proj_dim", 5, d.keys["hidden_size"], None)
    d.maybe("max_position_embeddings", 16, 33)
    d.flags("do_layer_norm_before", "_remove_final_layer_norm", "enable_bias", "layer_norm_elementwise_affine")
    d.maybe("layerdrop", 0.1)


def gen_bloom(d):
    common(d)
    gpt_names(d, [(("hidden_size", "n_embed"), (24, 48, 25)), (("n_layer", "num_hidden_layers"), (1, 2, 3, 0)),
                  (("n_head", "num_attention_heads"), (1, 2, 4))])
    d.rarely("n_embed", None)
    d.maybe("seq_length", 64)


def gen_falcon(d):
    common(d, "activation")
    heads = d.key("num_attention_heads", 1, 2, 4)
    d.keys[d.rng.choice(["hidden_size", "hidden_size", "n_embed"])] = (
        heads * d.rng.choice([4, 8, 6]) + (d.rng.random() < 0.06))
    layers(d)
    d.maybe("num_kv_heads", 1, 2, 4, None)
    for key in ("new_decoder_architecture", "multi_query", "parallel_attn", "bias", "alibi"):
        d.maybe(key, True, False, None)
    d.maybe("num_ln_in_parallel_attn", 1, 2, None)
    d.maybe("ffn_hidden_size", 20, 33, None)
    d.rarely("n_embed", None)
    d.rarely("head_dim", 8)
    rope(d, 8)


def gen_mpt(d):
    common(d)
    gpt_names(d, [(("d_model", "hidden_size"), (24, 48, 25)), (("n_layers", "num_hidden_layers"), (1, 2, 3, 0)),
                  (("n_heads", "num_attention_heads"), (1, 2, 4))])
    d.maybe("expansion_ratio", 2, 4)
    d.maybe("max_seq_len", 64)
    d.flags("no_bias", "learned_pos_emb")
    d.maybe("attn_config", {"alibi": False}, {"clip_qkv": 6.0}, None)


def gen_mamba(d):
    common(d)
    d.key("hidden_size", 24, 40, 33)
    layers(d)
    d.maybe("state_size", 4, 16)
    d.maybe("conv_kernel", 2, 4)
    d.maybe("expand", 1, 3)
    d.maybe("intermediate_size", 20, 64, chance=0.3)
    d.maybe("time_step_rank", "auto", 3, 8)
    d.flags("use_bias", "use_conv_bias")


def heads_of(prefix, *kinds, model=None, causal=None):
    names = {"c": causal or prefix + "ForCausalLM", "s": prefix + "ForSequenceClassification",
             "t": prefix + "ForTokenClassification", "q": prefix + "ForQuestionAnswering"}
    return [names[k] for k in ("c", *kinds)] + [model or prefix + "Model"]


# model_type: (configuration class, architectures, generator)
FAMILIES = {
    "llama": ("LlamaConfig", heads_of("Llama", *"stq"), gen_llama),
    "mistral": ("MistralConfig", heads_of("Mistral", *"stq"), gen_mistral),
    "mixtral": ("MixtralConfig", heads_of("Mixtral", *"stq"), gen_mixtral),
    "qwen2": ("Qwen2Config", heads_of("Qwen2", *"stq"), gen_qwen2),
    "qwen2_moe": ("Qwen2MoeConfig", heads_of("Qwen2Moe", *"stq"), gen_qwen2_moe),
    "qwen3": ("Qwen3Config", heads_of("Qwen3", *"stq"), gen_qwen3),
    "qwen3_moe": ("Qwen3MoeConfig", heads_of("Qwen3Moe", *"stq"), gen_qwen3_moe),
    "gemma": ("GemmaConfig", heads_of("Gemma", *"st"), gen_gemma),
    "gemma2": ("Gemma2Config", heads_of("Gemma2", *"st"), gen_gemma2),
    "gemma3_text": ("Gemma3TextConfig", ["Gemma3ForCausalLM", "Gemma3TextForSequenceClassification",
                                         "Gemma3TextModel"], gen_gemma3_text),
    "phi": ("PhiConfig", heads_of("Phi", *"st"), gen_phi),
    "phi3": ("Phi3Config", heads_of("Phi3", *"st"), gen_phi3),
    "starcoder2": ("Starcoder2Config", heads_of("Starcoder2", *"st"), gen_starcoder2),
    "olmo2": ("Olmo2Config", heads_of("Olmo2", "s"), gen_olmo2),
    "olmoe": ("OlmoeConfig", heads_of("Olmoe"), gen_olmoe),
    "gpt_oss": ("GptOssConfig", heads_of("GptOss", *"st"), gen_gpt_oss),
    "deepseek_v2": ("DeepseekV2Config", heads_of("DeepseekV2", "s"), latent),
    "deepseek_v3": ("DeepseekV3Config", heads_of("DeepseekV3", *"st"), latent),
    "gpt_neox": ("GPTNeoXConfig", heads_of("GPTNeoX", *"stq"), gen_gpt_neox),
    "gpt2": ("GPT2Config", heads_of("GPT2", *"stq", causal="GPT2LMHeadModel"), gen_gpt2),
    "gptj": ("GPTJConfig", heads_of("GPTJ", *"sq"), gen_gptj),
    "opt": ("OPTConfig", heads_of("OPT", *"sq"), gen_opt),
    "bloom": ("BloomConfig", heads_of("Bloom", *"stq"), gen_bloom),
    "falcon": ("FalconConfig", heads_of("Falcon", *"stq"), gen_falcon),
    "mpt": ("MptConfig", heads_of("Mpt", *"stq"), gen_mpt),
    "mamba": ("MambaConfig", heads_of("Mamba"), gen_mamba),
}


# --------------------------------------------------------------------------- #
# Comparison
# --------------------------------------------------------------------------- #
def build(config_class: str, architecture: str, keys: dict, dtype: str):
    """The real model on the meta device, or the exception that refused it."""
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(DTYPES[dtype])
        config = getattr(transformers, config_class)(**json.loads(json.dumps(keys)))
        saved = config.to_dict()
        with torch.device("meta"):
            model = getattr(transformers, architecture)(config)
        return {"listing": tree_listing(model), "no_split": sorted(model._no_split_modules or [])}, saved
    except Exception as error:  # noqa: BLE001 - whatever refuses it
        last = traceback.extract_tb(error.__traceback__)[-1]
        return {"error": f"{type(error).__name__}: {error} ({os.path.basename(last.filename)}:{last.lineno})"}, None
    finally:
        torch.set_default_dtype(default)


def first_difference(want: list[str], got: list[str]) -> str:
    for i in range(max(len(want), len(got))):
        a = want[i] if i < len(want) else "(nothing)"
        b = got[i] if i < len(got) else "(nothing)"
        if a != b:
            return f"line {i}\n    transformers {a}\n    fsdplan      {b}"
    return ""


def compare(want: dict, got: dict) -> str:
    if "error" in want:
        return "" if "error" in got else f"only transformers refuses: {want['error']}"
    if "error" in got:
        return f"only fsdplan refuses: {got['error']}"
    if want["no_split"] != sorted(got["no_split"]):
        return f"not to be split: {want['no_split']}, fsdplan {got['no_split']}"
    return first_difference(want["listing"], got["listing"])


def main(families: dict) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list-tree", required=True, help="the program tests/list_tree of a build")
    parser.add_argument("--family", nargs="*", default=list(families), choices=list(families))
    parser.add_argument("--count", type=int, default=40, help="configurations of each family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="differences shown for each family")
    options = parser.parse_args()

    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for family in options.family:
            config_class, architectures, generate = families[family]
            cases = []  # (file, expectation)
            for i in range(options.count):
                d = Draw(random.Random(f"{options.seed} {family} {i}"))
                generate(d)
                architecture = d.rng.choice([architectures[0], *architectures])
                dtype = d.rng.choice(list(DTYPES))
                want, saved = build(config_class, architecture, d.keys, dtype)
                head = {"architectures": [architecture], "model_type": family, "dtype": dtype}
                for form, keys in (("written", d.keys), ("saved", saved)):
                    if keys is None:
                        continue
                    path = os.path.join(folder, f"{family}-{i}-{form}.json")
                    with open(path, "w", encoding="utf-8") as out:
                        json.dump({**keys, **head}, out)
                    cases.append((path, want))
            result = os.path.join(folder, "listings.jsonl")
            subprocess.run([options.list_tree, result, *[path for path, _ in cases]], check=True)
            with open(result, encoding="utf-8") as lines:
                got = [json.loads(line) for line in lines]
            differences = [(path, text) for (path, want), answer in zip(cases, got)
                           if (text := compare(want, answer))]
            refused = sum("error" in want for _, want in cases)
            print(f"{family}: {len(cases)} configurations, {refused} refused by transformers, "
                  f"{len(differences)} differ", flush=True)
            for path, text in differences[: options.show]:
                print(f"  {text}\n    {open(path, encoding='utf-8').read()[:1500]}")
            failed += len(differences)
    print(f"{failed} differences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(FAMILIES))
