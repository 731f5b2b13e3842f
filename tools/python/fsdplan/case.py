"""Reads the `case` of a recording off a wrapped model: every setting that decides what a step does.

Only what differs from a default is written (README of the schema). What the format has no word for is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, CheckpointWrapper

from .compat import FSDPModule
from .errors import Refused
from .models import refuse_compiled
from .names import clean, innermost_modules, post_order
from .settings_fsdp1 import FlatSettings
from .settings_fsdp2 import ShardedSettings
from .submodules import is_checkpointing_layer
from .uniform import uniform
from .units import Unit, engine_of


def read_case(root: nn.Module, units: list[Unit], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Everything but the names, the number of iterations and what only the training loop shows."""
    engine = engine_of(root)
    refuse_compiled(root, "record")
    settings: dict[str, Any] = {"engine": engine}
    if engine == "fsdp1":
        settings |= FlatSettings(units).read()
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            settings["debug_detail"] = True
    else:
        settings |= ShardedSettings(root, units).read()
    wrapped = {path for unit in units for path in unit.paths}
    if (checkpointing := read_checkpointing(root, wrapped)) is not None:
        settings["ac"] = checkpointing
    if (optim := _read_optimizer(root, optimizer)) != "adamw":
        settings["optim"] = optim
    settings["world"] = dist.get_world_size()
    settings["wrap"] = [path for path in post_order(root) if path in wrapped]
    return settings


def read_checkpointing(root: nn.Module, units: Collection[str]) -> dict[str, Any] | None:
    """Activation checkpointing by wrappers or by transformers' own switch; None when there is none.

    `units` are the paths of FSDP's modules; a checkpoint round another module has no side to them.
    """
    wrappers = {clean(path): module for path, module in root.named_modules() if hasattr(module, "_checkpoint_wrapped_module")}
    for path, wrapper in wrappers.items():
        if not isinstance(wrapper, CheckpointWrapper):
            raise Refused(f"{path} is in a {type(wrapper).__name__}; a recording knows checkpoints alone")
        function = wrapper.checkpoint_fn
        if function.func is not torch.utils.checkpoint.checkpoint or set(function.keywords) - {"use_reentrant"}:
            raise Refused(f"{path} is checkpointed with a function or with options of its own; a recording knows plain "
                          "checkpoints")
    layers = [module for module in root.modules() if is_checkpointing_layer(module)]
    switched = [module for module in root.modules() if getattr(module, "gradient_checkpointing", False) is True]
    if wrappers and switched:
        raise Refused("checkpoint wrappers and the model's own gradient checkpointing at once; a recording has one")
    if switched:
        reentrant = uniform("use_reentrant", {type(m).__name__: _reentrant(m) for m in switched
                                               if hasattr(m, "_gradient_checkpointing_func")} or {"": False})
        some = {layer for layer in layers if layer.gradient_checkpointing} if layers else set()
        modules = [path for path, module in innermost_modules(root).items() if module in some]
        return {"mode": "hf"} | ({"modules": modules} if len(some) < len(layers) else {}) | (
            {"reentrant": True} if reentrant else {})
    if not wrappers:
        return None
    reentrant = uniform("checkpoint_impl", {path: w.checkpoint_impl is CheckpointImpl.REENTRANT
                                             for path, w in wrappers.items()})
    sides = {path: "outside" if _holds_unit(wrapper) else "inside" for path, wrapper in wrappers.items() if path in units}
    mode = uniform("the side of the checkpoint", sides or {"": "inside"})
    return {"mode": mode, "modules": [path for path in post_order(root) if path in wrappers]} | (
        {"reentrant": True} if reentrant else {})


def _holds_unit(wrapper: CheckpointWrapper) -> bool:
    inner = wrapper._checkpoint_wrapped_module
    return isinstance(inner, FSDPModule) or hasattr(inner, "_fsdp_wrapped_module")


def _reentrant(module: nn.Module) -> bool:
    function = module._gradient_checkpointing_func
    return bool(function.keywords.get("use_reentrant", True)) if isinstance(function, functools.partial) else False


def _read_optimizer(root: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """`adamw` (Adam holds the same state) or `sgd` (without momentum)."""
    name = type(optimizer).__name__
    if optimizer.state:
        raise Refused("the optimizer has state already; recordings begin with the first step")
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for path, parameter in root.named_parameters():
        if parameter.requires_grad and id(parameter) not in held:
            raise Refused(f"the optimizer does not hold {clean(path)}; it must hold every trainable parameter")
        if parameter.grad is not None:
            raise Refused(f"{clean(path)} has a gradient already; recordings begin without any")
    for group in optimizer.param_groups:
        for option in ("foreach", "fused", "amsgrad", "momentum", "capturable"):
            if group.get(option):
                raise Refused(f"the optimizer has {option}={group[option]}; a recording knows Adam and AdamW without "
                              "it, and SGD without momentum")
    if name in ("Adam", "AdamW"):
        return "adamw"
    if name == "SGD":
        return "sgd"
    raise Refused(f"the optimizer is {name}; a recording knows Adam, AdamW and SGD")
