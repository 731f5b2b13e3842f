#!/usr/bin/env python3
"""Plan files made by hand: what fsdplan.load and check refuse, and what a plan does to a small model. Needs torch.

usage: plan_files.py
"""
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = str(HERE.parents[1] / "tools" / "python")
sys.path.insert(0, PACKAGE)
os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.filterwarnings("ignore")

import torch
import torch.utils.checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils._python_dispatch import TorchDispatchMode

import fsdplan


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


BLOCK = 8 * 16 + 16 + 16 * 8 + 8
WRAP_PLAN = {
    "runtime": "fsdp2", "torch": "2.13", "mesh": {"replicate": 1, "shard": 8}, "strategy": "FULL_SHARD",
    "param_dtype": None, "reduce_dtype": None, "buffer_dtype": None, "offload": False, "batch": 1, "sequence": 16,
    "accumulate": 1, "no_sync": False, "optimizer": "adamw", "loss": "cross-entropy", "attention": "sdpa",
    "units": [*({"modules": [f"blocks.{i}"], "numel": BLOCK, "reshard_after_forward": i % 2 == 0} for i in range(3)),
              {"modules": ["norm", "head"], "numel": 16 + 36, "reshard_after_forward": 2}, {"modules": [""], "numel": BLOCK}],
    "activation_checkpointing": {"mode": "none", "modules": [], "placement": "inside"},
    "prefetch": {"forward": [["blocks.0", ["blocks.1", "blocks.2"]]], "backward": [["norm", ["blocks.2"]]]},
    "use_orig_params": True,
    "parameters": [{"name": name, "shape": list(p.shape), "dtype": "float32", "requires_grad": True}
                   for name, p in Net().named_parameters()],
}
FLAT = {"runtime": "fsdp1", "units": [{"modules": [f"blocks.{i}"], "numel": BLOCK} for i in (0, 2)] +
        [{"modules": [""], "numel": 2 * BLOCK + 52}],
        "prefetch": {"backward": "BACKWARD_POST", "forward": True, "limit_all_gathers": False}}


def result(**changes):
    return {"format": "fsdplan.result", "version": 1, "command": "plan",
            "recommended": {"wrap_plan": copy.deepcopy(WRAP_PLAN) | changes}}


def plan(folder, **changes):
    path = folder / "plan.json"
    path.write_text(json.dumps(result(**changes)))
    return fsdplan.load(path)


def refusal(function, *arguments):
    try:
        function(*arguments)
    except fsdplan.Refused as refused:
        return str(refused)
    raise AssertionError(f"{function.__qualname__} accepts {arguments}")


def checkpointing(placement, mode="modules", modules=("blocks.1", "blocks.2")):
    return {"mode": mode, "modules": list(modules), "placement": placement}


# Files -----------------------------------------------------------------------------------------------------------------

DAMAGED = {
    "": "plan.json:1:1: no JSON",
    "[1, 2": "plan.json:1:6: no JSON",
    "[" * 100000: "no JSON: maximum recursion",
    '{"format": NaN}': "NaN is no number",
    '{"format": 1, "format": 2}': 'the member "format" is given twice',
    "3": "plan.json#: expected an object, found 3",
    "{}": 'plan.json#: the member "format" is missing',
    '{"format": "fsdplan.module-tree"}': 'plan.json#/format: expected "fsdplan.result", found "fsdplan.module-tree"',
    json.dumps(result() | {"version": 2}): "plan.json#/version: expected 1, found 2",
    json.dumps(result() | {"recommended": None}): "there is no plan; none of those that were tried fits",
    json.dumps(result() | {"recommended": {}}): 'plan.json#/recommended: the member "wrap_plan" is missing',
}
UNIT = WRAP_PLAN["units"][0]
WRONG = [
    ({"runtime": "fsdp3"}, "/runtime: expected fsdp1 or fsdp2, found \"fsdp3\""),
    ({"strategy": "FULL_SHRD"}, '/strategy: expected "FULL_SHARD", found "FULL_SHRD"'),
    ({"param_dtype": "bf16"}, '/param_dtype: expected'),
    ({"mesh": {"replicate": 0, "shard": 8}}, "/mesh/replicate: expected an integer from 1 up, found 0"),
    ({"offload": 1}, "/offload: expected true or false, found 1"),
    ({"units": []}, '/units: expected the root, {"modules": [""]}, as the last unit'),
    ({"units": [UNIT]}, "/units: expected the root"),
    ({"units": [UNIT | {"modules": []}]}, "/units/0/modules: expected modules"),
    ({"units": [UNIT, UNIT, {"modules": [""], "numel": 1}]}, '/units/1/modules: expected modules that are in no other unit'),
    ({"units": [UNIT | {"numel": 2.5}]}, "/units/0/numel: expected an integer from 0 up, found 2.5"),
    ({"units": [UNIT | {"numel": True}]}, "/units/0/numel: expected an integer from 0 up, found true"),
    ({"units": [UNIT | {"reshard_after_forward": 0}]}, "/reshard_after_forward: expected an integer from 1 up"),
    (FLAT | {"units": [{"modules": ["norm", "head"], "numel": 1}]}, "/units/0/modules: expected one module"),
    (FLAT | {"use_orig_params": None}, "/use_orig_params: expected true or false, found null"),
    ({"prefetch": {"forward": [["blocks.3", []]], "backward": []}}, "/prefetch/forward/0/0: expected a module of a unit"),
    ({"prefetch": {"forward": [["norm"]], "backward": []}}, "/prefetch/forward/0: expected [module, [modules]]"),
    ({"activation_checkpointing": checkpointing("above")}, "/placement: expected inside or outside or forward"),
    ({"activation_checkpointing": checkpointing("inside", modules=[""])}, "/modules: expected modules below the root"),
]


def test_damaged_files(folder):
    path = folder / "plan.json"
    for text, expected in DAMAGED.items():
        path.write_text(text)
        assert expected in (said := refusal(fsdplan.load, path)), said
    path.write_bytes(b"\xff{}")
    assert "plan.json is no text: byte 0" in refusal(fsdplan.load, path)
    assert "No such file" in refusal(fsdplan.load, folder / "nothing.json")
    assert "Is a directory" in refusal(fsdplan.load, folder)


def test_wrong_members(folder):
    path = folder / "plan.json"
    for changes, expected in WRONG:
        path.write_text(json.dumps(result(**changes)))
        said = refusal(fsdplan.load, path)
        assert "plan.json#/recommended/wrap_plan" in said and expected in said and "\n" not in said, (expected, said)


def test_reading_needs_no_torch(folder):
    plan(folder)
    code = "import sys; sys.modules['torch'] = None; import fsdplan; print(fsdplan.load(sys.argv[1]).world)"
    done = subprocess.run([sys.executable, "-c", code, folder / "plan.json"], check=True, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": PACKAGE})
    assert done.stdout == "8\n", done.stdout


# The model -------------------------------------------------------------------------------------------------------------

def test_check_names_the_first_difference(folder):
    the_plan = plan(folder)
    the_plan.check(Net())
    with torch.device("meta"):
        the_plan.check(Net())

    def differs(change, expected):
        model = Net()
        change(model)
        assert expected in (said := refusal(the_plan.check, model)), said

    differs(lambda m: setattr(m, "head", nn.Linear(8, 5)), "the shape of head.weight is [5, 8], planned [4, 8]")
    differs(lambda m: m.norm.to(torch.bfloat16), "the dtype of norm.weight is bfloat16, planned float32")
    differs(lambda m: m.norm.bias.requires_grad_(False), "the requires_grad of norm.bias is False, planned True")
    differs(lambda m: m.blocks.append(Block()), "parameter 16 is blocks.4.up.weight, planned norm.weight")
    differs(lambda m: setattr(m, "more", nn.Linear(2, 2)), "parameter 20 is more.weight, which the plan does not have")
    differs(lambda m: delattr(m, "head"), "parameter 18 is head.weight, which the model does not have")
    with fsdplan.fake_process_group(8):
        wrapped = the_plan.apply(Net())
        assert "the model is wrapped already" in refusal(the_plan.check, wrapped)
    unknown = plan(folder, units=[{"modules": ["blocks.7"], "numel": 1}, {"modules": [""], "numel": 1}],
                   prefetch={"forward": [], "backward": []})
    assert "has no module blocks.7, which is a unit of the plan" in refusal(unknown.check, Net())
    unknown = plan(folder, activation_checkpointing=checkpointing("inside", modules=["blocks.x"]))
    assert "has no module blocks.x, which is checkpointed of the plan" in refusal(unknown.check, Net())


def test_ranks_are_checked(folder):
    the_plan = plan(folder)
    assert "there is no process group" in refusal(the_plan.apply, Net())
    with fsdplan.fake_process_group(4):
        model = Net()
        assert "the process group has 4 ranks, planned 8" in refusal(the_plan.apply, model)
        mesh = init_device_mesh("cpu", (2, 2))
        assert "the mesh has the shape [2, 2], planned [8]" in refusal(the_plan.apply, model, mesh)
        assert type(model) is Net and type(model.blocks[0]) is Block, "a refused model is as before"
        assert "is a plan for fully_shard" in refusal(the_plan.auto_wrap_policy)


def test_fully_shard(folder):
    the_plan = plan(folder, param_dtype="bfloat16", reduce_dtype="float32", offload=True)
    with fsdplan.fake_process_group(8):
        model = Net()
        assert the_plan.apply(model) is model
        groups = {name: module._get_fsdp_state() for name, module in model.named_modules() if hasattr(module, "_get_fsdp_state")}
        assert list(groups) == ["", "blocks.0", "blocks.1", "blocks.2", "norm", "head"]
        assert groups["norm"] is groups["head"]
        param_groups = {name: state._fsdp_param_group for name, state in groups.items()}
        after = {name: group.post_forward_mesh_info for name, group in param_groups.items()}
        assert after["blocks.0"] is param_groups["blocks.0"].mesh_info and after["blocks.1"] is None
        assert after["norm"].shard_mesh_size == 2
        policy = groups["blocks.0"]._mp_policy
        assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, torch.float32)
        assert type(param_groups[""].offload_policy).__name__ == "CPUOffloadPolicy"
        assert groups["blocks.0"]._states_to_forward_prefetch == [groups["blocks.1"], groups["blocks.2"]]
        assert groups["head"]._states_to_backward_prefetch == [groups["blocks.2"]]


def test_fully_sharded_data_parallel(folder):
    the_plan = plan(folder, **FLAT, strategy="HYBRID_SHARD", mesh={"replicate": 2, "shard": 4}, param_dtype="float16",
                    buffer_dtype="bfloat16")
    with fsdplan.fake_process_group(8):
        arguments = the_plan.fsdp_arguments()
        root = FSDP(Net(), auto_wrap_policy=the_plan.auto_wrap_policy(), **arguments)
        assert [type(block) for block in root.module.blocks] == [FSDP, Block, FSDP, Block]
        assert root.sharding_strategy.name == "HYBRID_SHARD" and root._inter_node_pg.size() == 2
        assert root.mixed_precision.param_dtype is torch.float16 and root.mixed_precision.buffer_dtype is torch.bfloat16
        assert root.backward_prefetch.name == "BACKWARD_POST" and root.forward_prefetch and not root.limit_all_gathers
        assert root._use_orig_params


def test_a_class_has_units_and_others(folder):
    """Modules are told by identity: blocks are of one class, and only some are units."""
    the_plan = plan(folder, **FLAT)
    with fsdplan.fake_process_group(8):
        root = the_plan.apply(Net())
        assert [type(block) for block in root.module.blocks] == [FSDP, Block, FSDP, Block]
        assert "has no module blocks.0" in refusal(the_plan.auto_wrap_policy()._run_policy, nn.Linear(2, 2), set(), {})


def test_checkpoints_stand_where_they_are_planned(folder):
    def path(module):
        names = []
        while inner := module._modules.get("_fsdp_wrapped_module", module._modules.get("_checkpoint_wrapped_module")):
            names.append("unit" if "_fsdp_wrapped_module" in module._modules else "checkpoint")
            module = inner
        return names

    for placement, expected in (("inside", ["unit", "checkpoint"]), ("outside", ["checkpoint", "unit"])):
        with fsdplan.fake_process_group(8):
            flat = plan(folder, **FLAT, activation_checkpointing=checkpointing(placement))
            root = flat.apply(Net())
            assert [path(block) for block in root.module.blocks] == [["unit"], ["checkpoint"], expected, []]
            wrong = "before" if placement == "inside" else "after"
            model = root if placement == "inside" else Net()
            assert f"are made {wrong} FSDP" in refusal(flat.checkpoint, model)
            sharded = plan(folder, activation_checkpointing=checkpointing(placement)).apply(Net())
            inner = type(sharded.blocks[2]).__name__
            assert inner == {"inside": "FSDPCheckpointWrapper", "outside": "CheckpointWrapper"}[placement], inner
    with fsdplan.fake_process_group(8):
        forward = plan(folder, activation_checkpointing=checkpointing("forward"))
        assert "Net has no gradient_checkpointing_enable" in refusal(forward.apply, Net())


class Products(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.again = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.again += func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return func(*args, **(kwargs or {}))


def test_selective_checkpoints_keep_every_other_product(folder):
    def products(mode):
        model = Net()
        for block in model.blocks:
            block.up, block.down = three_products()
        plan(folder, activation_checkpointing=checkpointing("inside", mode)).checkpoint(model)
        loss = model(torch.ones(2, 8, requires_grad=True)).sum()
        with Products() as seen:
            loss.backward()
        return seen.again

    def three_products():
        linear = [nn.Linear(8, 16, bias=False), nn.Linear(16, 16, bias=False), nn.Linear(16, 8, bias=False)]
        return nn.Sequential(linear[0], nn.Tanh(), linear[1]), linear[2]

    none, every, some = products("none"), products("modules"), products("selective")
    # In two blocks: all but the last, which autograd does not need again; and the second one alone.
    assert (every - none, some - none) == (2 * 2, 2 * 1), (none, every, some)


def main():
    tests = {name: value for name, value in globals().items() if name.startswith("test_")}
    with tempfile.TemporaryDirectory() as folder:
        for name, test in tests.items():
            test(pathlib.Path(folder))
            print(f"{name} holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
