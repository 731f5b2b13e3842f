"""Brings a plan into PyTorch, with either runtime."""

from __future__ import annotations

import warnings

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel

from .names import torch_version
from .plan import Plan
from .plan_fsdp2 import shard
from .plan_mesh import check_ranks, make_mesh


def apply_plan(plan: Plan, model: nn.Module, mesh: DeviceMesh | None) -> nn.Module:
    plan.check(model)
    if not torch_version().startswith(f"{plan.torch}."):
        warnings.warn(f"{plan.source} was planned for torch {plan.torch} and this is {torch_version()}: memory and "
                      "collectives may differ", stacklevel=3)
    check_ranks(plan, mesh)
    outside = plan.checkpointing.placement == "outside"
    if not outside:
        plan.checkpoint(model)
    if plan.runtime == "fsdp1":
        root: nn.Module = FullyShardedDataParallel(model, auto_wrap_policy=plan.auto_wrap_policy(), **plan.fsdp_arguments(mesh))
    else:
        root = shard(plan, model, mesh or make_mesh(plan))
    if outside:
        plan.checkpoint(root)
    return root
