#!/usr/bin/env python3
"""What the recorder of tools/python refuses: one line, exit status 2 or fsdplan.Refused, and no file left. Needs torch.

usage: record_refuses.py
"""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "recorder"), str(HERE.parents[1] / "tools" / "python")]
warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, fully_shard

import fsdplan
import fsdplan.cli


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))
        self.calls = 0

    def forward(self, x):
        return self.c(self.b(self.a(x)))


class Checkpoints(Net):
    def forward(self, x):
        return self.c(torch.utils.checkpoint.checkpoint(self.b, self.a(x), use_reentrant=False))


class Talks(Net):
    def forward(self, x):
        if dist.is_initialized():
            dist.all_reduce(torch.ones(1))
        return super().forward(x)


class Alternates(Net):
    """Layer drop: now `b`, now `c`."""

    def forward(self, x):
        self.calls += 1
        return (self.b if self.calls % 2 else self.c)(self.a(x))


def batch():
    return torch.ones(2, 8)


# Functions for --import.
def net():
    return Net(), batch


def checkpoints():
    return Checkpoints(), batch


def talks():
    return Talks(), batch


def alternates():
    return Alternates(), batch


def wrapped():
    with fsdplan.fake_process_group(2):
        return fully_shard(Net(), mesh=init_device_mesh("cpu", (2,))), batch


def number():
    return 3


def wrong_batch():
    return Net(), lambda: torch.ones(2, 9)


def raises():
    raise KeyError("first line\nsecond line")


COMMANDS = {
    "": "required: COMMAND",
    "record --import {}:net": "-o/--output",
    "record -o FOLDER": "one of the arguments --import --hf is required",
    "record --import net -o FOLDER": '"net" is not MODULE:FUNCTION',
    "record --import no.such.module:net -o FOLDER": "cannot import no.such.module",
    "record --import {}:no_such -o FOLDER": "has no function no_such",
    "record --import {}:number -o FOLDER": "must return (model, make_batch) or (model, args, kwargs), not int",
    "record --import {}:raises -o FOLDER": "raised KeyError",
    "record --import {}:wrong_batch -o FOLDER": "the forward of the plain model raised RuntimeError",
    "record --import {}:wrapped -o FOLDER": "describe the model before it is wrapped",
    "record --import {}:net --wrap x.* -o FOLDER": 'no module of the model matches "x.*"',
    "record --import {}:net --mesh 2x3 -o FOLDER": "--mesh 2x3 has not the 8 ranks of --world",
    "record --import {}:net --world 0 -o FOLDER": "argument --world",
    "record --import {}:net --engine fsdp1 --shard-dim 1 -o FOLDER": "--shard-dim does not exist with --engine fsdp1",
    "record --import {}:net --strategy NO_SHARD -o FOLDER": "--strategy does not exist with --engine fsdp2",
    "record --import {}:net --engine fsdp1 --strategy HYBRID_SHARD -o FOLDER": "--mesh and a HYBRID strategy",
    "record --import {}:net --reshard-after-forward 3 -o FOLDER": "ValueError",
    "record --import {}:net --wrap a --group b,c -o FOLDER": '"b" is not among the wrapped modules',
    "record --import {}:net --no-sync -o FOLDER": "need --accumulate N",
    "record --import {}:net --name a/b -o FOLDER": "cannot be the name of a file",
    "record --import {}:checkpoints -o FOLDER": "calls torch.utils.checkpoint itself",
    "record --import {}:talks -o FOLDER": "all_reduce is called outside of FSDP",
    "record --import {}:alternates --wrap a b c -o FOLDER": "calls other modules than the described one",
    "record --hf FOLDER -o FOLDER": "has no config.json",
}


def sharded(model, **settings):
    mesh = init_device_mesh("cpu", (8,))
    for module in (model.a, model.b):
        fully_shard(module, mesh=mesh, **settings)
    return fully_shard(model, mesh=mesh, **settings)


def flat(model, **settings):
    settings = {"device_id": torch.device("cpu"), "use_orig_params": True, **settings}
    model.a = FullyShardedDataParallel(model.a, **settings)
    return FullyShardedDataParallel(model, **settings)


def step(root, optimizer):
    fsdplan.default_loss(root(batch())).backward()
    optimizer.step()
    optimizer.zero_grad()


def no_zero_grad(root, optimizer):
    for _ in range(2):
        fsdplan.default_loss(root(batch())).backward()
        optimizer.step()


def zeros(root, optimizer):
    fsdplan.default_loss(root(batch())).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def two_forwards(root, optimizer):
    (fsdplan.default_loss(root(batch())) + fsdplan.default_loss(root(batch()))).backward()
    optimizer.step()
    optimizer.zero_grad()


def no_step(root, _optimizer):
    fsdplan.default_loss(root(batch())).backward()


def nothing(_root, _optimizer):
    pass


def evaluates(root, optimizer):
    step(root, optimizer)
    with torch.no_grad():
        root(batch())


def only_unsynchronized(root, optimizer):
    root.set_requires_gradient_sync(False)
    step(root, optimizer)


def changing(root, optimizer):
    step(root, optimizer)
    fsdplan.default_loss(root(batch())).backward()
    step(root, optimizer)


def adamw(root):
    return torch.optim.AdamW(root.parameters())


def odd_strategy(model):
    model.a = FullyShardedDataParallel(model.a, device_id=torch.device("cpu"), use_orig_params=True,
                                       mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def hooked(model):
    root = sharded(model)
    root.set_all_reduce_hook(lambda tensor: None)
    return root


def ran(model):
    root = sharded(model)
    root(batch())
    return root


def half(model):
    return fully_shard(model, mesh=init_device_mesh("cpu", (2, 4), mesh_dim_names=("x", "y"))["y"])


# (what wraps, what makes the optimizer, what trains, what is said)
LOOPS = [
    (lambda model: model, adamw, step, "the model is a Net"),
    (odd_strategy, adamw, step, "mixed_precision of a is"),
    (lambda m: flat(m, ignored_states=[m.c.bias]), adamw, step, "FSDP ignores parameters"),
    (lambda m: sharded(m, ignored_params={m.c.bias}), adamw, step, "fully_shard ignores c.bias"),
    (hooked, adamw, step, "all-reduce hook"),
    (ran, adamw, step, "has run a forward already"),
    (half, adamw, step, "fully_shard uses 1 x 4 of 8 ranks"),
    (sharded, lambda r: torch.optim.SGD(r.parameters(), lr=1, momentum=0.9), step, "momentum=0.9"),
    (sharded, lambda r: torch.optim.RMSprop(r.parameters()), step, "the optimizer is RMSprop"),
    (sharded, lambda r: torch.optim.AdamW(r.a.parameters()), step, "the optimizer does not hold"),
    (flat, adamw, no_zero_grad, "not followed by zero_grad()"),
    (sharded, adamw, zeros, "set_to_none=False"),
    (sharded, adamw, two_forwards, "the model runs twice before loss.backward()"),
    (flat, adamw, no_step, "ends without optimizer.step()"),
    (sharded, adamw, nothing, "ends without optimizer.step()"),
    (sharded, adamw, evaluates, "runs without gradients"),
    (sharded, adamw, only_unsynchronized, "does not reduce gradients in full"),
    (sharded, adamw, changing, "accumulate gradients in different ways"),
]


def of_command(line, folder):
    output = io.StringIO()
    with contextlib.redirect_stderr(output):
        status = fsdplan.cli.main(line.replace("FOLDER", folder).format("record_refuses").split())
    return output.getvalue() if status == 2 else f"exit status {status}"


def of_loop(wrap, make_optimizer, train, folder):
    model = Net()
    plain = fsdplan.describe(model, (batch(),))
    try:
        with fsdplan.fake_process_group(8):
            root = wrap(model)
            optimizer = make_optimizer(root)
            with fsdplan.record(folder, name="loop", model=root, optimizer=optimizer, plain=plain):
                train(root, optimizer)
    except fsdplan.Refused as refused:
        return f"{refused}\n"
    return "nothing is refused"


def main():
    sys.modules["record_refuses"] = sys.modules["__main__"]
    bad = 0
    cases = [(line, lambda folder, line=line: of_command(line, folder), said) for line, said in COMMANDS.items()]
    cases += [(f"loop: {said}", lambda folder, parts=parts: of_loop(*parts, folder), said) for *parts, said in LOOPS]
    for name, refuse, said in cases:
        with tempfile.TemporaryDirectory() as folder:
            message = refuse(folder)
            left = os.listdir(folder)
        if said not in message or message.count("\n") != 1 or left:
            bad += 1
            print(f"{name}: {message!r} instead of one line with {said!r}" + (f"; left {left}" if left else ""))
    print(f"{len(cases) - bad} of {len(cases)} are refused as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
