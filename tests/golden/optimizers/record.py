#!/usr/bin/env python3
"""Record what optimizers allocate and free in their first and second step, request by request, on a device without storage.

    record.py --phantom BUILD > recordings.json

BUILD holds libphantom.so, a stand-in for the CUDA runtime. torchao's step is compiled and bitsandbytes' is a CUDA kernel; neither runs
on the stand-in and neither asks the allocator for anything, so they are left out: their states are what is recorded.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from request_recorder import in_child, on_phantom, requests  # noqa: E402

MIXED = [[64, 32], [64], [16, 48], [5, 7, 3], [4096, 256], [1000]]
MATRICES = [[64, 32], [16, 48], [33, 20], [256, 512]]
QUANTISED = [[64, 32], [64], [16, 48], [4096, 256], [1000], [4100], [8192]]
WORLD = 4


def torch_cases():
    for name, cls, extra, ways in (("adamw", "AdamW", {}, "efl"), ("adam", "Adam", {}, "efl"), ("sgd", "SGD", {}, "efl"),
                                   ("sgd-momentum", "SGD", {"momentum": 0.9}, "efl"), ("adafactor", "Adafactor", {}, "el")):
        for way in ways:
            flags, word = {"e": ({"foreach": True}, "foreach"), "f": ({"fused": True}, "fused"), "l": ({"foreach": False}, "for-loop")}[way]
            yield f"{name}:{word}", MIXED, lambda p, cls=cls, extra=extra, flags=flags: getattr(__import__("torch").optim, cls)(p, lr=1e-3, **extra, **flags)


def muon(parameters):
    import torch

    return torch.optim.Muon(parameters, lr=1e-3)


def low_bit(name):
    def make(parameters):
        import torch
        import torchao.optim

        torch.compile = lambda function, **options: lambda *arguments: None
        return getattr(torchao.optim, name)(parameters, lr=1e-3)

    return make


def bitsandbytes(parameters):
    import bitsandbytes.functional as functional
    import bitsandbytes.optim

    functional.optimizer_update_8bit_blockwise = functional.optimizer_update_32bit = lambda *arguments, **options: None
    optimizer = bitsandbytes.optim.AdamW8bit(parameters, lr=1e-3)
    optimizer.fill_qmap()  # two tables that all parameters share
    optimizer.name2qmap = {name: table.cuda() for name, table in optimizer.name2qmap.items()}
    return optimizer


def cases():
    for name, shapes, make in torch_cases():
        for ranks in (1, WORLD):
            yield name, shapes, ranks, make
    for ranks in (1, WORLD):
        yield "muon", MATRICES, ranks, muon
    for name, make in (("adam8bit", low_bit("AdamW8bit")), ("adam4bit", low_bit("AdamW4bit")), ("adam8bit-bnb", bitsandbytes)):
        for ranks in (1, WORLD):
            yield name, QUANTISED, ranks, make


def record(name, shapes, ranks, dtype, make):
    import torch
    from torch import nn

    torch.cuda.set_device(0)
    number = getattr(torch, dtype)
    model = nn.Module()
    for i, shape in enumerate(shapes):
        model.register_parameter(f"p{i}", nn.Parameter(torch.zeros(shape, device="cuda", dtype=number)))
    if ranks > 1:
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        fully_shard(model, mesh=init_device_mesh("cuda", (ranks,)))
    square = torch.zeros(8, 8, device="cuda", dtype=torch.bfloat16)
    torch.mm(square, square)  # cuBLAS has its workspace
    optimizer = make(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    local = [(p.to_local() if ranks > 1 else p).numel() for p in model.parameters()]
    out = {"optimizer": name, "dtype": dtype, "ranks": ranks, "shapes": shapes, "local_numel": local}
    try:
        return {**out, "steps": [requests(torch, optimizer.step) for _ in range(2)]}
    except Exception as error:
        return {**out, "error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def main():
    on_phantom(__doc__.splitlines()[0])
    import torch.distributed.fsdp  # before the forks
    import torch.testing._internal.distributed.fake_pg  # noqa: F401

    before = "["
    for name, shapes, ranks, make in cases():
        for dtype in ("float32", "bfloat16"):
            print(before + in_child(record, name, shapes, ranks, dtype, make), end="", flush=True)
            before = ",\n "
    print("]")


if __name__ == "__main__":
    main()
