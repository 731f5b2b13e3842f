"""Whether a recording can be made here, and whether it agrees with the description of the plain model."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn

from .dataflow import Description
from .errors import Refused
from .names import clean
from .units import Unit


def check_group() -> None:
    if not dist.is_initialized():
        raise Refused("there is no process group; wrap and record inside of fsdplan.fake_process_group(WORLD)")
    if (backend := dist.get_backend()) not in ("fake", "gloo"):
        raise Refused(f"the process group is {backend}; wrap and record inside of fsdplan.fake_process_group(WORLD)")
    if dist.get_rank() != 0:
        raise Refused(f"this is rank {dist.get_rank()}; a recording is of rank 0")


def check_description(plain: Description, root: nn.Module, units: list[Unit], engine: str) -> None:
    """Whether `plain` can be the model in the units: same parameters with the same shapes, modules where the units are."""
    tensors = {row["id"]: row for row in plain.tree["tensors"]}
    shapes: dict[str, list[int]] = {}
    required: dict[str, bool] = {}
    parameters: dict[int, str] = {}  # tensor -> its first name
    for module in plain.tree["modules"]:
        for local, tensor in module.get("parameters", {}).items():
            path = f"{module['fqn']}.{local}" if module["fqn"] else local
            shapes[path], required[path] = tensors[tensor]["shape"], tensors[tensor]["requires_grad"]
            parameters.setdefault(tensor, path)
    paths = {module["fqn"] for module in plain.tree["modules"]}
    sharded = 0
    for unit in units:
        if missing := [path for path in unit.paths if path not in paths]:
            raise Refused(f"the described model has no module {missing[0]}; describe the model that is wrapped")
        for row in unit.row.get("params") or [r for r in unit.row.get("layout", []) if "name" in r]:
            name = row["name"] if engine == "fsdp2" or not unit.fqn else f"{unit.fqn}.{row['name']}"
            if shapes.get(name) != row["shape"]:
                raise Refused(f"{name} has the shape {row['shape']} and {shapes.get(name, 'none')} in the described model; "
                              "describe the model that is wrapped")
            sharded += 1
    if sharded != len(parameters):
        raise Refused(f"the units hold {sharded} parameters and the described model {len(parameters)}; describe the model "
                      "that is wrapped")
    for path, parameter in root.named_parameters():
        name = clean(path)
        if name in required and required[name] != parameter.requires_grad:
            raise Refused(f"requires_grad of {name} has changed since the model was described")


def check_calls(plain: Description, events: list[dict[str, Any]], units: list[Unit]) -> None:
    """A forward that draws which modules it calls cannot be recorded: the description would be another one's."""
    wrapped = {path for unit in units for path in unit.paths}
    expected = [path for path in plain.tree["forward_order"] if path in wrapped]
    calls: list[str] = []
    for event in [*events, {"e": "microbatch"}]:
        if event["e"] == "microbatch":
            if calls and calls != expected:
                where = next((i for i, (a, b) in enumerate(zip(calls, expected)) if a != b), min(len(calls), len(expected)))
                raise Refused("the recorded forward calls other modules than the described one: "
                              f"{calls[where] if where < len(calls) else 'nothing'} instead of "
                              f"{expected[where] if where < len(expected) else 'nothing'} as unit {where}")
            calls = []
        elif event["e"] == "fwd_begin" and event["p"] == "fwd":
            calls.append(event["u"])
