"""PyTorch's own wrapping beside fsdplan's, in one run on one machine: prints times and ratios.

usage: against_pytorch.py <folder with config.json> <fsdplan_bench's JSON>

Times are CPU time of one thread, which a busy machine disturbs less than wall time.
"""

import json
import os
import platform
import statistics
import sys
import time

import torch
import transformers
from torch.distributed.fsdp.wrap import _recursive_wrap, size_based_auto_wrap_policy

DEFAULT_THRESHOLD = 10**8


class Recorder:
    """In place of FullyShardedDataParallel: counts the modules that it is given and returns them as they are."""

    units = 0

    def __new__(cls, module, **_):
        cls.units += 1
        return module


def best_of(runs, function):
    """Seconds of the fastest run and of the median one."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times), statistics.median(times)


def wrap_once(model):
    Recorder.units = 0
    _recursive_wrap(model, size_based_auto_wrap_policy, Recorder, set(), set(), only_wrap_children=True)


class NaiveEvaluator:
    """What one would write in an afternoon: the size policy over plain lists, once for every threshold that matters."""

    def __init__(self, model):
        modules = list(model.modules())
        index = {module: i for i, module in enumerate(modules)}
        self.children = [[index[child] for child in module.children()] for module in modules]
        self.numel = [sum(p.numel() for p in module.parameters()) for module in modules]
        policy = size_based_auto_wrap_policy
        leaf, excluded = tuple(policy.FORCE_LEAF_MODULES), tuple(policy.EXCLUDE_WRAP_MODULES)
        self.leaf = [isinstance(module, leaf) for module in modules]
        self.excluded = [isinstance(module, excluded) for module in modules]

    def evaluate(self, threshold):
        """The units below the root and the largest amount that was too small at this threshold."""
        units = []
        too_small = -1

        def wrapped_below(m):
            nonlocal too_small
            if self.numel[m] < threshold or self.leaf[m]:
                too_small = max(too_small, self.numel[m] if self.numel[m] < threshold else -1)
                return 0
            done = sum(map(wrapped_below, self.children[m]))
            rest = self.numel[m] - done
            if m == 0 or self.excluded[m]:
                return done
            if rest < threshold:
                too_small = max(too_small, rest)
                return done
            units.append(m)
            return self.numel[m]

        wrapped_below(0)
        return units, too_small

    def all_plans(self):
        plans = []
        threshold = self.numel[0] + 1
        while threshold >= 0:
            units, threshold = self.evaluate(threshold)
            if not plans or plans[-1] != units:
                plans.append(units)
        return plans


def shown(seconds):
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def cpu_name():
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main():
    folder, bench_file = sys.argv[1:]
    with open(bench_file) as f:
        ours = {row["name"]: row for row in json.load(f)["benchmarks"]}
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    one = ours["evaluate_405b"]
    every = ours["all_plans_405b"]
    one_s = one["cpu_time"] * scale[one["time_unit"]]
    every_s = every["cpu_time"] * scale[every["time_unit"]]

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    wrap_once(model)  # the first call imports what it needs
    torch_s, torch_median = best_of(7, lambda: wrap_once(model))
    naive = NaiveEvaluator(model)
    plans = len(naive.all_plans())
    naive_s, naive_median = best_of(7, naive.all_plans)

    default_units = len(naive.evaluate(DEFAULT_THRESHOLD)[0])
    for what, got, want in (
        ("units at the default threshold: naive evaluator", default_units, Recorder.units),
        ("units at the default threshold: fsdplan", int(one["units"]) - 1, Recorder.units),
        ("distinct plans: fsdplan", int(every["plans"]), plans),
    ):
        if got != want:
            sys.exit(f"{what} has {got}, expected {want}: times of different things cannot be compared")

    print(f"{cpu_name()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}; Python {platform.python_version()}, "
          f"torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"{folder}: {len(naive.numel)} modules, {Recorder.units + 1} units at the default threshold, {plans} distinct plans")
    print("best of 7 (median) for Python, Google Benchmark's mean for fsdplan\n")
    print(f"one threshold    PyTorch {shown(torch_s)} ({shown(torch_median)})   fsdplan {shown(one_s)}   "
          f"{torch_s / one_s:,.0f} times as fast")
    print(f"all thresholds   naive Python {shown(naive_s)} ({shown(naive_median)})   fsdplan {shown(every_s)}   "
          f"{naive_s / every_s:,.0f} times as fast")


main()
