"""The units of a wrapped model: their names, their layout, and which objects of the runtime they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from .compat import FSDPModule, check_fsdp2, fsdp2_groups, fsdp2_modules, fsdp2_states
from .errors import Refused
from .events import Tape
from .names import clean, short_dtype


@dataclass
class Unit:
    """One wrapped module, or the modules of one fully_shard call."""

    paths: list[str]
    owner: Any  # FSDP1: the FullyShardedDataParallel module; FSDP2: the state of fully_shard
    handle: Any  # FSDP1: the flat parameter handle; FSDP2: the parameter group; None for a unit without parameters
    row: dict[str, Any]  # as a recording writes it

    @property
    def fqn(self) -> str:
        return ",".join(self.paths)


def engine_of(model: nn.Module) -> str:
    if isinstance(model, FullyShardedDataParallel):
        return "fsdp1"
    if isinstance(model, FSDPModule):
        return "fsdp2"
    raise Refused(f"the model is a {type(model).__name__}; give the outermost module that FullyShardedDataParallel "
                  "returned or that fully_shard was called on")


def find_units(root: nn.Module) -> list[Unit]:
    """In the order of the runtime, the root first. The model must not have run since it was wrapped."""
    if engine_of(root) == "fsdp1":
        _refuse_started(FullyShardedDataParallel.fsdp_modules(root))
        return _flat_units(root)
    check_fsdp2()
    _refuse_started([state for _, state in fsdp2_states(root)])
    return _sharded_units(root)


def name_units(units: list[Unit], tape: Tape) -> None:
    """Tells the tape which handle is which unit and what the process groups are for."""
    for unit in units:
        if unit.handle is None:
            continue
        tape.units[unit.handle] = unit.fqn
        if isinstance(unit.owner, FullyShardedDataParallel):
            tape.name_group("shard", unit.handle.process_group)
            tape.name_group("replicate", getattr(unit.owner, "_inter_node_pg", None))
            continue
        mesh, after_forward = unit.handle.mesh_info, unit.handle.post_forward_mesh_info
        tape.name_group("shard", mesh.shard_process_group)
        tape.name_group("replicate", getattr(mesh, "replicate_process_group", None))
        if after_forward is not None and after_forward is not mesh:
            tape.name_group("post_forward", after_forward.shard_process_group)


def reshard_after_forward(group: Any) -> bool | int:
    """What the group does now; only the first forward settles what a root without a setting does."""
    if group.post_forward_mesh_info is None:
        return False
    if group.post_forward_mesh_info is group.mesh_info:
        return True
    return group.post_forward_mesh_info.shard_mesh_size


def _refuse_started(owners: list[Any]) -> None:
    if any(owner._is_root is not None for owner in owners):  # the first forward settles which unit is the root
        raise Refused("the model has run a forward already; recordings begin with the first one ever")


def _flat_units(root: nn.Module) -> list[Unit]:
    paths: dict[nn.Module, str] = {}
    for path, module in root.named_modules():
        paths.setdefault(module, clean(path))
    units = []
    for module in FullyShardedDataParallel.fsdp_modules(root):
        handle, path = module._handle, paths[module]
        row = {"fqn": path, "params": []} if handle is None else _flat_row(path, module, handle)
        units.append(Unit([path], module, handle, row))
    return units


def _flat_row(path: str, module: Any, handle: Any) -> dict[str, Any]:
    flat = handle.flat_param
    members = iter(zip(flat._fqns, flat._shapes))
    layout: list[dict[str, Any]] = []
    for numel, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask):
        if is_padding:
            layout.append({"pad": numel})
        else:
            name, shape = next(members)
            layout.append({"name": clean(name), "shape": list(shape), "numel": numel})
    shared = [[clean(f"{alias.module_name}.{alias.param_name}"),
               clean(f"{alias.prim_module_name}.{alias.prim_param_name}")] for alias in flat._shared_param_infos]
    return {
        "fqn": path, "strategy": module.sharding_strategy.name, "dtype": short_dtype(handle._orig_param_dtype),
        "requires_grad": bool(flat.requires_grad), "layout": layout, "shared": shared,
        "numel": sum(flat._numels_with_padding), "shard_numel": flat._sharded_size.numel(),
        "shard_pad": flat._shard_numel_padded, "param_dtype": short_dtype(handle._fwd_bwd_param_dtype),
        "reduce_dtype": short_dtype(handle._reduce_dtype),
        "divide": [getattr(module, "_gradient_predivide_factor", None),
                   getattr(module, "_gradient_postdivide_factor", None)],
    }


def _sharded_units(root: nn.Module) -> list[Unit]:
    names = {id(parameter): clean(path) for path, parameter in root.named_parameters()}
    units = []
    for first, state in fsdp2_states(root):
        modules = fsdp2_modules(state)
        paths = [clean(path) for path, module in root.named_modules() if any(module is m for m in modules)]
        groups = fsdp2_groups(state)
        if len(groups) > 1:
            raise Refused(f"the parameters of {clean(first) or 'the root'} are sharded over several meshes")
        if not groups:
            units.append(Unit(paths, state, None, {"fqn": clean(first), "params": []}))
            continue
        group = groups[0]
        row = {"fqn": ",".join(paths), "reshard_after_forward": reshard_after_forward(group),
               "params": [_sharded_row(names[id(p.sharded_param)], p) for p in group.fsdp_params]}
        units.append(Unit(paths, state, group, row))
    return units


def _sharded_row(name: str, parameter: Any) -> dict[str, Any]:
    row = {
        "name": name, "shape": list(parameter._orig_size), "dtype": short_dtype(parameter.sharded_param.dtype),
        "requires_grad": bool(parameter.sharded_param.requires_grad),
        "padded_shard": list(parameter.padded_sharded_param_size), "shard": list(parameter.sharded_size),
        "dim": shard_dim(parameter),
    }
    if aliases := parameter._module_info.shared_modules:
        row["shared"] = len(aliases)
    return row


def shard_dim(parameter: Any) -> int:
    placement = getattr(parameter, "fsdp_placement", None)  # always dimension 0 before there was a choice
    return 0 if placement is None else placement.dim
