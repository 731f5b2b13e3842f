"""PyTorch's own tracker of FSDP2's memory beside fsdplan, in one run on one machine: prints times and their ratio.

usage: mem_tracker.py <folder with config.json> <fsdplan_bench's JSON>

PyTorch plays one training step on fake tensors under FSDPMemTracker, eight ranks, a unit a block: of the model with two layers,
as in tests/golden/runtime/tracker_llama3-8b_fake.json, then of all of it. fsdplan lowers and simulates a step operator by
operator, with its times and the allocator. Building the model and describing its operators counts for neither.
Times are CPU time of one thread, which a busy machine disturbs less than wall time.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS = 8
SEQUENCE = 2048
STEPS = ((2, "step_of_operators/8b_two_layers"), (None, "step_of_operators/8b"))  # layers, None: all; fsdplan's benchmark
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def tracked_step(folder, layers):
    """Seconds of CPU."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = layers or config.num_hidden_layers
    with FakeTensorMode():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
        for block in model.model.layers:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        ids = torch.randint(0, config.vocab_size, (1, SEQUENCE))
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((ids,))
        start = time.process_time()
        with tracker:
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        seconds = time.process_time() - start
    dist.destroy_process_group()
    return seconds


def main():
    folder, bench_file = sys.argv[1:]
    with open(bench_file) as f:
        ours = {row["name"]: row["cpu_time"] * UNITS[row["time_unit"]] for row in json.load(f)["benchmarks"]}
    print(f"\n{folder}: a step under FSDP2 on {RANKS} ranks, a unit a block, load {os.getloadavg()[0]:.2f}")
    for layers, benchmark in STEPS:
        torch_s = tracked_step(folder, layers)
        print(f"memory of a step, {layers or 'all'} layers  FSDPMemTracker {torch_s:.1f} s   "
              f"fsdplan, with times {ours[benchmark] * 1e3:.2f} ms   {torch_s / ours[benchmark]:,.0f} times as fast")


main()
