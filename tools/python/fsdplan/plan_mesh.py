"""The ranks that a plan is for."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .errors import Refused
from .plan import Plan


def check_ranks(plan: Plan, mesh: DeviceMesh | None) -> None:
    if mesh is not None and tuple(mesh.mesh.shape) != plan.mesh_shape:
        raise Refused(f"the mesh has the shape {list(mesh.mesh.shape)}, planned {list(plan.mesh_shape)}")
    if not dist.is_initialized():
        raise Refused("there is no process group; call torch.distributed.init_process_group before")
    if mesh is None and dist.get_world_size() != plan.world:
        raise Refused(f"the process group has {dist.get_world_size()} ranks, planned {plan.world}")


def make_mesh(plan: Plan) -> DeviceMesh:
    names = ("replicate", "shard") if plan.is_hybrid else ("shard",)
    return init_device_mesh(device_type(None), plan.mesh_shape, mesh_dim_names=names)


def device_type(mesh: DeviceMesh | None) -> str:
    if mesh is not None:
        return mesh.device_type
    return "cuda" if torch.cuda.is_available() else "cpu"
