#!/usr/bin/env python3
"""Runs the Python that fsdplan writes for a plan, and compares the sharded model with the plan.

Code of a small model, as tests/planner/code_test.cpp has it in files: units, groups, reshard_after_forward, checkpoints and
prefetch lists. Code that `fsdplan sweep` writes for models of transformers: units and elements, as `fsdplan units` has them.
On the fake process group of 8 ranks. Needs the packages of requirements.txt.

usage: run_code.py --fsdplan PROGRAM
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "exporter"), str(HERE / "plans"), str(HERE.parents[1] / "tools" / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.filterwarnings("ignore")

import real_models
import torch
import toys
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

import fsdplan
from fsdplan.files import write_tree
from fsdplan.names import clean
from fsdplan.tree import module_tree
from fsdplan.units import find_units

CODE = HERE.parent / "planner" / "code"
BLOCKS = [f"layers.{i}" for i in range(4)]

# Name of the files -> what the sharded model must have beside the blocks as units.
TOYS = {
    "some_blocks": {"units": ["layers.0", "layers.2.mlp", "layers.3"]},
    "reshard": {"units": ["layers.0", "layers.1", "layers.1.mlp", "layers.2", "layers.3"],
                "reshard": {"layers.0": False, "layers.1": True, "layers.1.mlp": 4, "layers.2": False, "layers.3": True}},
    "one_reshard": {"reshard": {path: 2 for path in ["", *BLOCKS]}},
    "group": {"units": ["layers.0", "layers.1", "layers.2", "layers.2.norm,layers.2.mlp"],
              "reshard": {"layers.2.norm,layers.2.mlp": False, "layers.0": True}},
    "prefetch": {"prefetch": {"forward": {"layers.0": ["layers.1", "layers.2"], "layers.1": ["layers.2", "layers.3"],
                                          "layers.2": ["layers.3"]},
                              "backward": {"layers.3": ["layers.2", "layers.1"], "layers.1": ["layers.0"]}}},
    "checkpoint_some": {"checkpoints": {"layers.0": "inside", "layers.2": "inside"}},
    "checkpoint_outside": {"checkpoints": {"layers.0": "outside", "layers.2": "outside"}},
    "checkpoint_forward": {"checkpoints": {"layers.0": "forward", "layers.2": "forward"}},
    "checkpoint_blocks": {"checkpoints": dict.fromkeys(BLOCKS, "inside")},
    "checkpoint_selective": {"checkpoints": dict.fromkeys(BLOCKS, "inside")},
}

# Name -> model and options of `fsdplan sweep`.
SWEEPS = {
    "llama": ("llama", "--policy blocks"),
    "llama_checkpoints": ("llama", "--policy blocks --activation-checkpointing blocks"),
    "llama_every_other": ("llama", "--policy blocks --activation-checkpointing every:2"),
    "llama_zero2": ("llama", "--policy blocks --strategy SHARD_GRAD_OP --offload"),
    "llama_hybrid": ("llama", "--policy blocks --strategy HYBRID_SHARD --mesh 2x4"),
    "gpt2_names": ("gpt2", "--policy names:*.1,*.2.mlp --param-dtype none"),
    "qwen3_size": ("qwen3", "--runtime fsdp1 --policy size --use-orig-params"),
    "t5": ("t5", "--policy blocks --reshard-after-forward 2"),
}


def ran(code, model):
    """The module to train with. The code is for a GPU, which is not here."""
    names = {"model": model}
    text = code.replace("torch.cuda.current_device()", 'torch.device("cpu")').replace('device_mesh("cuda"', 'device_mesh("cpu"')
    text = text.replace("CPUOffloadPolicy()", "CPUOffloadPolicy(pin_memory=False)")
    exec(compile(text, "code", "exec"), names)
    return names["model"]


def expect(what, got, expected):
    assert got == expected, f"{what} {got} instead of {expected}"


def run_toy(name, runtime):
    expected = TOYS[name]
    with fsdplan.fake_process_group(8):
        root = ran((CODE / f"{name}.{runtime}.py").read_text(), toys.LM())
        units = {unit.fqn: unit for unit in find_units(root)}
        expect("units", sorted(units), sorted(["", *expected.get("units", BLOCKS)]))
        expect("checkpoints", checkpoints(root), expected.get("checkpoints", {}))
        for path, reshard in expected.get("reshard", {}).items():
            expect(f"reshard_after_forward of {path}", units[path].row["reshard_after_forward"], reshard)
        for direction, lists in expected.get("prefetch", {}).items() if runtime == "fsdp2" else ():
            expect(f"{direction} prefetch", prefetches(units, direction), lists)
        root(torch.zeros(2, 4, dtype=torch.int64)).sum().backward()


def checkpoints(root):
    """Path -> where its checkpoint stands to the unit."""
    found = {}
    for path, module in root.named_modules():
        if isinstance(module, CheckpointWrapper):
            inner = module._checkpoint_wrapped_module
            sharded = hasattr(inner, "_fsdp_wrapped_module") or hasattr(type(inner), "_get_fsdp_state")
            found[clean(path)] = "outside" if sharded else "inside"
        elif "_fsdp_wrapped_module" not in module._modules and getattr(module, "gradient_checkpointing", False):
            found[clean(path)] = "forward"
    return found


def prefetches(units, direction):
    names = {id(unit.owner): fqn for fqn, unit in units.items()}
    lists = {fqn: getattr(unit.owner, f"_states_to_{direction}_prefetch") for fqn, unit in units.items()}
    return {fqn: [names[id(state)] for state in states] for fqn, states in lists.items() if states}


def run_sweep(program, name):
    model_name, options = SWEEPS[name]
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "model.json"
        write_tree(tree, module_tree(getattr(real_models, model_name)()[0], model_name))
        line = [program, "sweep", tree, "--json", "--gpu", "h100-sxm", "--gpus", "8", "--batch", "2", "--seq", "16",
                *options.split()]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        for plan in json.loads(done.stdout)["plans"]:
            assert plan["code"], f"no code for {plan['units']}"
            for runtime, code in plan["code"].items():
                with fsdplan.fake_process_group(8):
                    check_sweep(ran(code, getattr(real_models, model_name)()[0]), plan, runtime)


def check_sweep(root, plan, runtime):
    units = find_units(root)
    numels = {unit.fqn: sum(torch.Size(row["shape"]).numel()
                            for row in unit.row.get("layout", unit.row.get("params")) if "shape" in row) for unit in units}
    expect(f"units by {runtime}", numels, dict(zip(plan["unit_modules"], plan["unit_numel"])))


def apart(function, *arguments):
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join()
    return process.exitcode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fsdplan", required=True)
    options = parser.parse_args()
    files = sorted(CODE.glob("*.py"))
    assert {path.name.split(".")[0] for path in files} == set(TOYS), "a file has no expectation, or the other way"
    wrong = [path.name for path in files if not apart(run_toy, *path.name.split(".")[:2])]
    wrong += [name for name in SWEEPS if not apart(run_sweep, options.fsdplan, name)]
    print(f"{len(files) + len(SWEEPS) - len(wrong)} of {len(files) + len(SWEEPS)} plans are sharded as their code says")
    print("".join(f"wrong: {name}\n" for name in wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
