#!/usr/bin/env python3
"""Exports of small models against real steps of the same models on the CPU.

Every operator that allocates must be the same, with what it allocates and the bytes alive then; so must be the bytes alive
after forward and backward and at the peaks of both, and which gradients the engine adds in place, which it does only when no
dispatch mode watches it. Needs torch and transformers of requirements.txt.

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
import zoo  # noqa: E402
from real_step import difference  # noqa: E402

from fsdplan.exporter import operator_tree  # noqa: E402
from fsdplan.models import as_batch, model_and_batch  # noqa: E402

ZOO = "llama llama_tied llama_lora llama_frozen gpt2 t5 vit albert mlp conv reused unused branchy nnt".split()


def models():
    for name, function in vars(steps).items():
        if inspect.isfunction(function) and function.__module__ == "steps" and name != "batch":
            model, sample = function()
            yield f"steps.{name}", model, as_batch(sample, name)
    for name in ZOO:
        yield f"zoo.{name}", *model_and_batch(getattr(zoo, name)(), name)


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
        if wrong := difference(operator_tree(model, (args, kwargs)), model, args, kwargs):
            bad += 1
            print(f"{name}: {wrong}", flush=True)
    print(f"{count - bad} of {count} steps are as the export says")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())
