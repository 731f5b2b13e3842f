"""Records what peft's get_peft_model makes of small models, for tests/model/lora_test.cpp.

usage: python tests/live/record_peft.py tests/model/data/peft      (torch, transformers and peft)

A case is a folder: base.json is the model, lora.json the same after get_peft_model, options.txt what --lora says.
"""

import json
import pathlib
import sys

import peft
import torch
import transformers
from torch import nn


def class_name(cls):
    return f"{cls.__module__}.{cls.__qualname__}".replace("__main__.", "toys.")


def module_tree(model, name, source):
    classes, modules, tensors = {}, {}, {}

    def tensor(t, persistent):
        if id(t) not in tensors:
            row = {"id": len(tensors), "shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch."),
                   "requires_grad": t.requires_grad}
            tensors[id(t)] = row | ({} if persistent else {"persistent": False})
        return tensors[id(t)]["id"]

    def visit(m):
        if id(m) in modules:
            return modules[id(m)]["id"]
        row = modules[id(m)] = {"id": len(modules)}
        row["class"] = classes.setdefault(type(m), len(classes))
        row["parameters"] = {k: tensor(p, True) for k, p in m._parameters.items() if p is not None}
        row["buffers"] = {k: tensor(b, k not in m._non_persistent_buffers_set)
                          for k, b in m._buffers.items() if b is not None}
        row["children"] = {k: visit(c) for k, c in m._modules.items() if c is not None}
        for key in ("parameters", "buffers", "children"):
            if not row[key]:
                del row[key]
        return row["id"]

    root = visit(model)
    return {
        "format": "fsdplan.module-tree", "version": 1, "model": name, "source": source,
        "classes": [{"name": class_name(c), "bases": [class_name(b) for b in c.__mro__[1:-1]]} for c in classes],
        "modules": list(modules.values()), "tensors": list(tensors.values()), "root": root,
    }


def causal(config, dtype):
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


def llama(**changes):
    return transformers.LlamaConfig(**dict(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=32) | changes)


class Toy(nn.Module):
    """A shared target, a dotted path as target, a parameter that peft takes for an adapter's, float64."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6, dtype=torch.float64), nn.ReLU())
        self.second = nn.Module()
        self.second.proj = self.first[0]
        self.out = nn.Linear(6, 3)
        self.lora_gate = nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.ones(2))


GPT2 = transformers.GPT2Config(n_embd=16, n_head=2, n_layer=1, vocab_size=32, n_positions=8)
BERT = transformers.BertConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                               vocab_size=32, max_position_embeddings=8)

CASES = {
    "llama-bf16": (lambda: causal(llama(), torch.bfloat16), "r=8,targets=q_proj+v_proj"),
    "llama-tied-head": (lambda: causal(llama(tie_word_embeddings=True), torch.float32),
                        "r=2,targets=embed_tokens+mlp.down_proj,dropout=0.1"),
    "gpt2": (lambda: causal(GPT2, torch.float16), "r=4,targets=c_attn+wte+lm_head"),
    "bert": (lambda: transformers.AutoModelForMaskedLM.from_config(BERT), "r=4,targets=query+value"),
    "toy": (Toy, "r=3,targets=first.0+out"),
}


def lora_config(text, model):
    options = dict(part.split("=") for part in text.split(","))
    generates = isinstance(model, transformers.GenerationMixin)
    return peft.LoraConfig(
        r=int(options["r"]), target_modules=options["targets"].split("+"),
        lora_dropout=float(options.get("dropout", 0)),
        task_type=peft.TaskType.CAUSAL_LM if generates else None)


def main(folder):
    for name, (build, options) in CASES.items():
        case = pathlib.Path(folder, name)
        case.mkdir(parents=True, exist_ok=True)
        model = build()
        base = module_tree(model, name, f"transformers {transformers.__version__}")
        adapted = module_tree(peft.get_peft_model(model, lora_config(options, model)), name,
                              f"peft {peft.__version__}")
        for file, tree in (("base.json", base), ("lora.json", adapted)):
            (case / file).write_text(json.dumps(tree, separators=(",", ":")) + "\n")
        (case / "options.txt").write_text(options + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
