"""Wraps a plain model as the options of the command line say."""

from __future__ import annotations

import fnmatch
import functools
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision,
                                    ShardingStrategy)

from .compat import CPUOffloadPolicy, MixedPrecisionPolicy, Shard, fully_shard
from .errors import Refused
from .names import DTYPES, post_order
from .submodules import locate, replace


@dataclass
class Wrapping:
    """What to wrap and how. None and empty stand for PyTorch's defaults."""

    engine: str
    wrap: list[str] = field(default_factory=list)  # patterns of paths; * is any part of one segment
    mesh: tuple[int, int] | None = None  # replicate, shard
    mixed_precision: dict[str, Any] = field(default_factory=dict)
    cpu_offload: bool = False
    checkpointing: str | None = None  # inside, outside or hf
    checkpointed: list[str] = field(default_factory=list)
    reentrant: bool = False
    # FSDP1
    strategy: str = "FULL_SHARD"
    unit_strategies: dict[str, str] = field(default_factory=dict)
    use_orig_params: bool = True
    backward_prefetch: str | None = "BACKWARD_PRE"
    forward_prefetch: bool = False
    limit_all_gathers: bool = True
    # FSDP2
    reshard_after_forward: bool | int | None = None
    unit_reshard: dict[str, bool | int] = field(default_factory=dict)
    root_reshard: bool | int | None = None
    root_output_dtype: str | None = None
    grouped: list[list[str]] = field(default_factory=list)
    forward_prefetch_units: int = 0
    root_forward_prefetch: bool = False
    backward_prefetch_units: int = 0
    unshard_async: bool = False
    gradient_divide_factor: float | None = None
    force_sum: bool = False
    no_unshard_in_backward: list[str] = field(default_factory=list)
    reduce_unused: bool = False
    reduce_scatter_buffers: int = 1
    shard_dim: int = 0


def wrap(model: Any, how: Wrapping) -> nn.Module:
    """The root to train with. The model is changed in place; the process group must exist."""
    if how.checkpointing == "hf":
        if not hasattr(model, "gradient_checkpointing_enable"):
            raise Refused(f"{type(model).__name__} has no gradient_checkpointing_enable; checkpoint inside or outside")
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": how.reentrant})
    model.train()
    if how.checkpointing == "inside":
        _checkpoint(model, how)
    root = _wrap_flat(model, how) if how.engine == "fsdp1" else _wrap_sharded(model, how)
    if how.checkpointing == "outside":
        _checkpoint(root, how)
    return root


def matching(model: nn.Module, patterns: list[str]) -> list[str]:
    """Paths that match, children before parents; a pattern that matches nothing is refused."""
    paths = post_order(model)
    for pattern in patterns:
        if not any(_matches(pattern, path) for path in paths):
            raise Refused(f'no module of the model matches "{pattern}"')
    return [path for path in paths if any(_matches(pattern, path) for pattern in patterns)]


def _matches(pattern: str, path: str) -> bool:
    wanted, parts = pattern.split("."), path.split(".")
    return len(wanted) == len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _checkpoint(model: nn.Module, how: Wrapping) -> None:
    kind = CheckpointImpl.REENTRANT if how.reentrant else CheckpointImpl.NO_REENTRANT
    for path in matching(model, how.checkpointed or how.wrap):
        replace(model, path, lambda module: checkpoint_wrapper(module, checkpoint_impl=kind))


def _mesh(shape: tuple[int, int]) -> DeviceMesh:
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))


def _dtypes(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: DTYPES[value] if isinstance(value, str) else value for key, value in settings.items()}


def _wrap_flat(model: nn.Module, how: Wrapping) -> nn.Module:
    settings: dict[str, Any] = {
        "sharding_strategy": ShardingStrategy[how.strategy],
        "use_orig_params": how.use_orig_params,
        "device_id": torch.device("cpu"),
        "backward_prefetch": BackwardPrefetch[how.backward_prefetch] if how.backward_prefetch else None,
        "forward_prefetch": how.forward_prefetch,
        "limit_all_gathers": how.limit_all_gathers,
        "mixed_precision": MixedPrecision(**_dtypes(how.mixed_precision)) if how.mixed_precision else None,
        "cpu_offload": CPUOffload(True) if how.cpu_offload else None,
    }
    if how.mesh is not None:
        settings["device_mesh"] = _mesh(how.mesh)
    paths = matching(model, how.wrap)
    _refuse_strangers(how.unit_strategies, paths, "--unit-strategy")
    for path in paths:
        strategy = ShardingStrategy[how.unit_strategies.get(path, how.strategy)]
        replace(model, path, functools.partial(FullyShardedDataParallel, **{**settings, "sharding_strategy": strategy}))
    return FullyShardedDataParallel(model, **settings)


def _wrap_sharded(model: Any, how: Wrapping) -> nn.Module:
    mesh = _mesh(how.mesh) if how.mesh is not None else init_device_mesh("cpu", (dist.get_world_size(),))
    settings: dict[str, Any] = {"mesh": mesh}
    if how.mixed_precision:
        settings["mp_policy"] = MixedPrecisionPolicy(**_dtypes(how.mixed_precision))
    if how.cpu_offload:
        settings["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if dim := how.shard_dim:
        settings["shard_placement_fn"] = lambda parameter: Shard(dim if parameter.ndim > dim else 0)
    if how.reshard_after_forward is not None:
        settings["reshard_after_forward"] = how.reshard_after_forward

    paths = matching(model, how.wrap)
    _refuse_strangers(how.unit_reshard, paths, "--unit-reshard")
    _refuse_strangers(how.no_unshard_in_backward, paths, "--no-unshard-in-backward")
    together = [path for group in how.grouped for path in group]
    _refuse_strangers(together, paths, "--group")
    modules = {path: locate(model, path)[1] for path in paths}
    for path in paths:
        if path not in together:
            own = {"reshard_after_forward": how.unit_reshard[path]} if path in how.unit_reshard else {}
            fully_shard(modules[path], **{**settings, **own})
    for group in how.grouped:
        fully_shard([modules[path] for path in group], **settings)
    root_settings = dict(settings)
    if how.root_output_dtype is not None:
        root_settings["mp_policy"] = MixedPrecisionPolicy(
            **_dtypes({**how.mixed_precision, "output_dtype": how.root_output_dtype}))
    if how.root_reshard is not None:
        root_settings["reshard_after_forward"] = how.root_reshard
    fully_shard(model, **root_settings)
    _prefetch(model, list(modules.values()), how)
    if how.unshard_async:
        model._set_unshard_async_op(True)
    if how.gradient_divide_factor is not None:
        model.set_gradient_divide_factor(how.gradient_divide_factor)
    if how.force_sum:
        model.set_force_sum_reduction_for_comms(True)
    for path in how.no_unshard_in_backward:
        modules[path].set_unshard_in_backward(False)
    if how.reduce_unused:
        model.set_reduce_scatter_unused_params(True)
    if how.reduce_scatter_buffers != 1:
        model.set_reduce_scatter_max_input_buffers(how.reduce_scatter_buffers)
    return model


def _prefetch(root: Any, units: list[Any], how: Wrapping) -> None:
    def next_units(order: list[Any], n: int) -> list[tuple[Any, list[Any]]]:
        return [(unit, order[i + 1:i + 1 + n]) for i, unit in enumerate(order) if order[i + 1:i + 1 + n]]

    for unit, targets in next_units(units, how.forward_prefetch_units):
        unit.set_modules_to_forward_prefetch(targets)
    if how.root_forward_prefetch:
        root.set_modules_to_forward_prefetch(units[:1])
    for unit, targets in next_units(units[::-1], how.backward_prefetch_units):
        unit.set_modules_to_backward_prefetch(targets)


def _refuse_strangers(given: Any, paths: list[str], option: str) -> None:
    for path in given:
        if path not in paths:
            raise Refused(f'{option}: "{path}" is not among the wrapped modules')
