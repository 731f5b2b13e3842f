#!/usr/bin/env python3
"""What the exporter of tools/python refuses: one line, exit status 2, and no file left. Needs torch.

usage: export_refuses.py
"""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools" / "python")]
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper  # noqa: E402

import fsdplan.cli  # noqa: E402


class Asks(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.inner, self.how = nn.Linear(8, 8), how

    def forward(self, x):
        return self.how(self.inner(x))


class Routes(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Asks(lambda x: x[x.sum(1) > 0])

    def forward(self, x):
        return self.router(x)


class Alternates(nn.Module):
    """Layer drop: now `b`, now `c`."""

    def __init__(self):
        super().__init__()
        self.b, self.c, self.calls = nn.Linear(8, 8), nn.Linear(8, 8), 0

    def forward(self, x):
        self.calls += 1
        return (self.b if self.calls % 2 else self.c)(x)


def batch():
    return torch.ones(2, 8)


def sparse():
    return nn.Embedding(10, 8, sparse=True), lambda: torch.arange(4)


def compiled():
    return torch.compile(nn.Linear(8, 8)), batch


def compiled_inside():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].compile()
    return model, batch


def wrapped():
    return nn.Sequential(checkpoint_wrapper(nn.Linear(8, 8))), batch


def value():
    return Asks(lambda x: x * x.sum().item()), batch


def routes():
    return Routes(), batch


def frozen():
    return nn.Linear(8, 8).requires_grad_(False), batch


def alternates():
    return Alternates(), batch


def lazy():
    return nn.Sequential(nn.LazyLinear(8)), batch


def breaks():
    return nn.Linear(8, 9), lambda: torch.ones(2, 7)


def builds_with_values():
    """A model that reads values while it is built, as those with stochastic depth do, is built for real."""
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(torch.linspace(0, 0.5, 3)[1].item())), batch


def two(output):
    return output


def huge():
    return nn.Sequential(*(nn.Linear(1 << 20, 1 << 20, bias=False) for _ in range(3))), lambda: torch.ones(4, 1 << 20)


def meta():
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), lambda: torch.ones(2, 8, device="meta")


REFUSED = {
    "sparse": "a tensor is sparse_coo; an export knows dense tensors alone",
    "compiled": "the model is compiled; export without torch.compile",
    "compiled_inside": "1 is compiled; export without torch.compile",
    "wrapped": "0 is wrapped already; describe the model before it is wrapped",
    "value": "the model looks at values (aten._local_scalar_dense.default), and an export has shapes only",
    "routes": "router looks at values (aten.nonzero.default), and an export has shapes only",
    "frozen": "nothing in the model's output requires a gradient",
    "alternates": "a second forward calls other modules than the first; an export needs a forward that does not draw",
    "lazy": "a lazy module has no shape yet; run one forward before",
    "breaks": "the model raised RuntimeError without memory: a and b must have same reduction dim, but got [2, 7] X [8, 9].",
}
LINES = {
    ("--hf", "nowhere"): "nowhere has no config.json",
    ("--import", "export_refuses:nothing"): "export_refuses has no function nothing",
    ("--import", "export_refuses:batch", "--set", "a=1"): "--set needs --hf",
    ("--import", "export_refuses:meta", "--loss", "export_refuses:two"): "the loss is not a tensor with one element",
    ("--import", "export_refuses:meta", "--gradient-checkpointing"):
        "--gradient-checkpointing is for models of transformers",
}
WRITTEN = ("builds_with_values", "huge", "meta")


def run(*line):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = fsdplan.cli.main(["export", *line])
    return status, err.getvalue()


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.json")
        cases = {("--import", f"export_refuses:{name}"): text for name, text in REFUSED.items()} | LINES
        for line, text in cases.items():
            status, told = run(*line, "-o", path)
            if (status, told) != (2, f"fsdplan export: {text}\n") or os.listdir(folder):
                bad += 1
                print(f"{' '.join(line)}: status {status}, {told!r} instead of {text!r}")
        for name in WRITTEN:
            status, told = run("--import", f"export_refuses:{name}", "-o", path)
            if status or told or not os.path.exists(path):
                bad += 1
                print(f"{name}: status {status}, {told!r}")
    print(f"{bad} of {len(REFUSED) + len(LINES) + len(WRITTEN)} are wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
