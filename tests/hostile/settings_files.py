"""Odd and hostile settings files of other tools: writes them below a folder and says what `fsdplan units` must do.

make(folder) returns a list of more.Case. A file is refused in one line that names it, or accepted.
"""

import json
import os
import pathlib
import random

from more import Case

TESTS = pathlib.Path(__file__).parent.parent
MODEL = str(TESTS / "golden/frontends/torchtitan/llama3-debugmodel.tree.json")
SAMPLES = TESTS / "frontend/data"
FRONT_ENDS = {"accelerate": "yaml", "deepspeed": "json", "torchtitan": "toml", "trainer": "json", "plan": "json"}

DEEP = 100_000
# What no reader of any format may stumble over: None stands for "refused or accepted".
ANY_FORMAT = {
    "empty": (b"", None),
    "zero_bytes": (b"\0" * 100, None),
    "no_text": (bytes(range(256)), ""),
    "byte_order_mark_only": (b"\xef\xbb\xbf", None),
    "brackets": (b"[" * DEEP, ""),
    "braces": (b"{" * DEEP, ""),
    "nested_members": (b'{"a":' * DEEP, ""),
    "nested_toml": (b"a = " + b"[" * DEEP + b"]" * DEEP, ""),
    "dotted_toml": (b"a" + b".a" * DEEP + b" = 1", ""),
    "dotted_within_bounds": (b"a" + b".a" * 1999 + b" = 1", ""),
    "aliases_of_aliases": (b"a: &a [x,x]\n" + b"".join(
        b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % ((c, c) + (c - 1,) * 8) for c in range(98, 123)), None),
    "one_long_line": (b"x" * 1_000_000, None),
    "list": (b"[1, 2, 3]", ""),
    "number": (b"42", ""),
}

WRONG_VALUES = ["auto", "", -1, 0, 0.5, 1e300, 2**62, -2**63, True, False, None, [], [1], ["x"], {}, {"a": {"b": [1]}},
                "x" * 10_000, "\n\x1b[31m"]

KEYS = {
    "accelerate": ["distributed_type", "mixed_precision"] + ["fsdp_config/fsdp_" + key for key in (
        "version", "auto_wrap_policy", "min_num_params", "transformer_layer_cls_to_wrap", "reshard_after_forward",
        "sharding_strategy", "backward_prefetch", "ignored_modules", "state_dict_type", "offload_params")],
    "deepspeed": ["zero_optimization", "zero_optimization/stage", "zero_optimization/reduce_bucket_size",
                  "zero_optimization/offload_optimizer", "zero_optimization/zenflow", "bf16", "bf16/enabled",
                  "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                  "gradient_clipping", "optimizer", "optimizer/type", "optimizer/params", "tensor_parallel",
                  "communication_data_type", "data_types"],
    "torchtitan": ["training", "training/local_batch_size", "training/global_batch_size", "training/seq_len",
                   "training/mixed_precision_param", "training/max_norm", "parallelism/data_parallel_shard_degree",
                   "parallelism/data_parallel_replicate_degree", "parallelism/fsdp_reshard_after_forward",
                   "parallelism/tensor_parallel_degree", "activation_checkpoint/mode",
                   "activation_checkpoint/selective_ac_option", "optimizer/name", "model/converters", "compile"],
    "trainer": ["fsdp", "fsdp_config", "fsdp_config/version", "fsdp_config/auto_wrap_policy",
                "fsdp_config/transformer_layer_cls_to_wrap", "fsdp_config/min_num_params", "bf16", "optim", "deepspeed",
                "per_device_train_batch_size", "gradient_accumulation_steps", "accelerator_config",
                "gradient_checkpointing", "gradient_checkpointing_kwargs", "max_grad_norm"],
    "plan": ["format", "recommended"] + ["recommended/wrap_plan" + key for key in (
        "", "/runtime", "/torch", "/mesh", "/mesh/shard", "/strategy", "/param_dtype", "/batch", "/optimizer", "/units",
        "/units/0", "/units/0/modules", "/units/0/modules/0", "/units/0/numel", "/units/1/reshard_after_forward",
        "/activation_checkpointing", "/activation_checkpointing/mode", "/activation_checkpointing/modules/0",
        "/prefetch", "/prefetch/forward", "/prefetch/forward/0", "/prefetch/forward/0/1", "/parameters",
        "/parameters/0/shape", "/parameters/0/shape/0", "/parameters/3/name")],
}
VALID = {
    "accelerate": {"distributed_type": "FSDP", "mixed_precision": "bf16", "fsdp_config": {
        "fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": "Llama3TransformerBlock"}},
    "deepspeed": {"train_batch_size": 8, "zero_optimization": {"stage": 3}, "bf16": {}, "optimizer": {"type": "Adam"}},
    "torchtitan": {"training": {}, "parallelism": {}, "activation_checkpoint": {}, "optimizer": {}, "model": {}},
    "trainer": {"fsdp": True, "bf16": True, "fsdp_config": {
        "transformer_layer_cls_to_wrap": ["Llama3TransformerBlock"]}},
    "plan": json.loads((SAMPLES / "plan.json").read_text()),
}


def changed(document, path, value):
    """A copy with another value at a slash-separated path."""
    copy = json.loads(json.dumps(document))
    *way, last = path.split("/")
    place = copy
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return copy


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return json.dumps(value)


def text_of(front_end, document):
    if front_end != "torchtitan":
        return json.dumps(document)  # which is YAML too
    return "".join(f"{json.dumps(k)} = {toml(v)}\n" for k, v in document.items() if v is not None)


def make(folder):
    cases = []

    def add(front_end, name, content, cause):
        file = f"settings_{front_end}_{name}.{FRONT_ENDS[front_end]}"
        with open(os.path.join(folder, file), "wb") as out:
            out.write(content if isinstance(content, bytes) else content.encode())
        gpus = "4" if front_end == "plan" else "8"
        option = "--plan" if front_end == "plan" else f"--{front_end}-config"
        # Some of their runtimes have no units, so that only a step shows what was made of the settings.
        command = ["simulate", "--gpu", "h100-sxm", "--seq", "64"] if front_end in ("deepspeed", "trainer") else ["units"]
        cases.append(Case(f"{front_end} {name}", [MODEL, "--gpus", gpus, option, "{}/" + file] + command[1:], cause,
                          command=command[0], settings=file))

    chance = random.Random(1)
    for front_end, extension in FRONT_ENDS.items():
        for name, (content, cause) in ANY_FORMAT.items():
            add(front_end, name, content, cause)
        for i, path in enumerate(KEYS[front_end]):
            for k, value in enumerate(WRONG_VALUES):
                add(front_end, f"{i}_{k}", text_of(front_end, changed(VALID[front_end], path, value)), None)
        sample = (SAMPLES / f"{front_end}.{extension}").read_bytes()
        for i in range(10):  # cut off, and with a byte changed
            add(front_end, f"cut_{i}", sample[:chance.randrange(len(sample))], None)
            place = chance.randrange(len(sample))
            add(front_end, f"byte_{i}", sample[:place] + bytes([chance.randrange(256)]) + sample[place + 1:], None)
    return cases
