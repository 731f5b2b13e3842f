"""What FullyShardedDataParallel takes of a plan."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import _Policy

from .errors import Refused
from .plan import FlatPrefetch, Plan
from .plan_mesh import check_ranks, device_type, make_mesh
from .submodules import outermost_modules


class PlannedUnits(_Policy):
    """Wraps the modules at the planned paths below the root, by identity, with the root's arguments."""

    def __init__(self, plan: Plan) -> None:
        _require_fsdp1(plan)
        self._paths = [path for unit in plan.units for path in unit.modules if path]

    def _run_policy(self, root_module: nn.Module, ignored_modules: set[nn.Module],
                    root_kwargs: dict[str, Any]) -> dict[nn.Module, dict[str, Any]]:
        modules = outermost_modules(root_module)
        for path in self._paths:
            if path not in modules:
                raise Refused(f"the model has no module {path}, which is a unit of the plan")
            if modules[path] in ignored_modules:
                raise Refused(f"{path} is ignored, and a unit of the plan")
        return {modules[path]: root_kwargs for path in self._paths}

    def __repr__(self) -> str:
        return f"PlannedUnits({', '.join(self._paths)})"


def fsdp_arguments(plan: Plan, mesh: DeviceMesh | None) -> dict[str, Any]:
    _require_fsdp1(plan)
    check_ranks(plan, mesh)
    assert isinstance(plan.prefetch, FlatPrefetch)
    arguments: dict[str, Any] = {
        "sharding_strategy": ShardingStrategy[plan.strategy],
        "use_orig_params": plan.use_orig_params,
        "backward_prefetch": BackwardPrefetch[plan.prefetch.backward] if plan.prefetch.backward else None,
        "forward_prefetch": plan.prefetch.forward,
        "limit_all_gathers": plan.prefetch.limit_all_gathers,
        "device_id": torch.device("cpu") if device_type(mesh) == "cpu" else torch.cuda.current_device(),
    }
    if dtypes := {key: getattr(torch, name) for key in ("param_dtype", "reduce_dtype", "buffer_dtype")
                  if (name := getattr(plan, key))}:
        arguments["mixed_precision"] = MixedPrecision(**dtypes)
    if plan.offload:
        arguments["cpu_offload"] = CPUOffload(offload_params=True)
    if plan.is_hybrid or mesh is not None:
        arguments["device_mesh"] = mesh or make_mesh(plan)
    return arguments


def _require_fsdp1(plan: Plan) -> None:
    if plan.runtime != "fsdp1":
        raise Refused(f"{plan.source} is a plan for fully_shard; call apply(model)")
