"""The calls of fully_shard that a plan stands for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from .compat import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from .errors import Refused
from .plan import ListedPrefetch, Plan
from .submodules import outermost_modules


def shard(plan: Plan, model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The model, sharded in place."""
    if plan.strategy == "NO_SHARD":
        raise Refused(f"{plan.source} shards nothing, which fully_shard cannot do")
    assert isinstance(plan.prefetch, ListedPrefetch)
    modules: dict[str, Any] = dict(outermost_modules(model))
    settings = _settings(plan, mesh)
    for unit in plan.units:
        own = {} if unit.reshard_after_forward is None else {"reshard_after_forward": unit.reshard_after_forward}
        together = [modules[path] for path in unit.modules]
        fully_shard(together if len(together) > 1 else together[0], **settings, **own)
    for path, targets in plan.prefetch.forward:
        modules[path].set_modules_to_forward_prefetch([modules[target] for target in targets])
    for path, targets in plan.prefetch.backward:
        modules[path].set_modules_to_backward_prefetch([modules[target] for target in targets])
    return model


def _settings(plan: Plan, mesh: DeviceMesh) -> dict[str, Any]:
    settings: dict[str, Any] = {"mesh": mesh}
    dtypes = {key: getattr(torch, name) for key in ("param_dtype", "reduce_dtype") if (name := getattr(plan, key))}
    if dtypes:
        settings["mp_policy"] = MixedPrecisionPolicy(**dtypes)
    if plan.offload:
        settings["offload_policy"] = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu")
    return settings
