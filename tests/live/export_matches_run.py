#!/usr/bin/env python3
"""Exports of small models against real steps of the same models on the CPU.

Bytes alive after forward and backward and at the peaks of both must be equal; so must be which gradients the engine adds in
place, which it does only when no dispatch mode watches it. Needs torch and transformers of requirements.txt.

usage: export_matches_run.py [--only PATTERN]
"""
import argparse
import fnmatch
import gc
import inspect
import os
import pathlib
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "exporter"), str(HERE / "recorder"), str(HERE.parents[1] / "tools" / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import steps  # noqa: E402
import torch  # noqa: E402
import zoo  # noqa: E402
from replay import broken_law, replay  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from fsdplan.dataflow import default_loss  # noqa: E402
from fsdplan.exporter import operator_tree  # noqa: E402
from fsdplan.memory import LiveBytes  # noqa: E402
from fsdplan.models import as_batch, model_and_batch  # noqa: E402

ZOO = "llama llama_tied llama_lora llama_frozen gpt2 t5 vit albert mlp conv reused unused branchy nnt".split()
ENGINE = "autograd::engine::evaluate_function: "


def models():
    for name, function in vars(steps).items():
        if inspect.isfunction(function) and function.__module__ == "steps" and name != "batch":
            model, sample = function()
            yield f"steps.{name}", model, as_batch(sample, name)
    for name in ZOO:
        yield f"zoo.{name}", *model_and_batch(getattr(zoo, name)(), name)


def bytes_of_step(model, args, kwargs):
    memory = LiveBytes()
    constants = [value for module in model.modules() for value in vars(module).values()]
    for value in [*model.parameters(), *model.buffers(), *tree_leaves((args, kwargs)), *constants]:
        if isinstance(value, torch.Tensor):
            memory.track(value)
    base, result = memory.live, {}
    with memory:
        memory.peak = memory.live
        output = model(*args, **kwargs)
        value = default_loss(output)
        del output
        result |= {"forward_peak_bytes": memory.peak - base, "after_forward_bytes": memory.live - base}
        memory.peak = memory.live
        value.backward()
        del value
        result |= {"backward_peak_bytes": memory.peak - base, "after_backward_bytes": memory.live - base}
    return result


def additions(model, args, kwargs):
    """Of each gradient that the engine adds to another, in order: whether in place."""
    value = default_loss(model(*args, **kwargs))
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        value.backward()
    events = sorted(profiled.events(), key=lambda event: event.time_range.start)
    return [event.name == "aten::add_" for event in events if event.name in ("aten::add", "aten::add_")
            and event.cpu_parent and event.cpu_parent.name.startswith(ENGINE)]


def problem(model, args, kwargs):
    document = operator_tree(model, (args, kwargs))
    if law := broken_law(document):
        return law
    operators = document["operators"]
    if (new := replay(operators)) != (real := bytes_of_step(model, args, kwargs)):
        return f"{new} instead of {real}"
    model.zero_grad()
    real = additions(model, args, kwargs)
    count = sum("reuses" in row for row in operators["backward"])
    if count != sum(real):
        return f"{count} additions in place instead of {sum(real)}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default="*", help="shell pattern on names")
    options = parser.parse_args()
    bad = count = 0
    gc.disable()  # memory in cycles would go at some time
    for name, model, (args, kwargs) in models():
        if not fnmatch.fnmatchcase(name, options.only):
            continue
        count += 1
        model(*args, **kwargs)  # what a first forward makes
        gc.collect()
        if wrong := problem(model, args, kwargs):
            bad += 1
            print(f"{name}: {wrong}", flush=True)
    print(f"{count - bad} of {count} steps are as the export says")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())
