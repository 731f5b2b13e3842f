"""Reads the settings of fully_shard."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch.distributed as dist
from torch import nn

from .compat import CPUOffloadPolicy
from .errors import Refused
from .names import clean, post_order
from .uniform import mixed_precision, uniform
from .units import Unit, reshard_after_forward, shard_dim


class ShardedSettings:
    """Settings of fully_shard, read from its states and parameter groups."""

    def __init__(self, root: nn.Module, units: list[Unit]) -> None:
        self._model = root
        self._units = units
        self._root = units[0]
        self._groups = {unit.fqn: unit.handle for unit in units if unit.handle is not None}
        self._states = {unit.fqn: unit.owner for unit in units}

    def read(self) -> dict[str, Any]:
        self._refuse_unknown()
        settings: dict[str, Any] = {}
        if (mesh := self._mesh()) is not None:
            settings["mesh"] = mesh
        settings |= self._precision()
        settings |= self._reshard()
        if grouped := [unit.paths for unit in self._units if len(unit.paths) > 1]:
            settings["grouped"] = grouped
        settings |= self._prefetch()
        settings |= self._reduction()
        if uniform("offload_policy", {path: isinstance(g.offload_policy, CPUOffloadPolicy)
                                       for path, g in self._groups.items()}):
            settings["cpu_offload"] = True
        if dim := self._shard_dim():
            settings["shard_dim"] = dim
        return settings

    def _each(self, attribute: str, default: Any = None) -> dict[str, Any]:
        return {path: getattr(group, attribute, default) for path, group in self._groups.items()}

    def _same(self, attribute: str, default: Any = None) -> Any:
        return uniform(attribute, self._each(attribute, default))

    def _mesh(self) -> list[int] | None:
        def sizes(info: Any) -> list[int]:
            if not hasattr(info, "shard_mesh_size"):
                raise Refused("a unit is replicated only; a recording has sharded units")
            return [getattr(info, "replicate_mesh_size", 0), info.shard_mesh_size]

        replicate, shard = uniform("the mesh", {path: sizes(g.mesh_info) for path, g in self._groups.items()})
        if max(replicate, 1) * shard != dist.get_world_size():
            raise Refused(f"fully_shard uses {max(replicate, 1)} x {shard} of {dist.get_world_size()} ranks; a recording "
                          "needs all of them")
        return [replicate, shard] if replicate else None

    def _precision(self) -> dict[str, Any]:
        found = {path: mixed_precision(s._mp_policy, type(s._mp_policy)()) for path, s in self._states.items()}
        root = found[""]
        inner = uniform("mp_policy", {path: mp for path, mp in found.items() if path}) if len(found) > 1 else root
        settings = {"mp": inner} if inner else {}
        return settings if root == inner else settings | {"root_mp": root}

    def _reshard(self) -> dict[str, Any]:
        values = {path: reshard_after_forward(group) for path, group in self._groups.items()}
        automatic = getattr(self._root.owner, "_auto_reshard_after_forward", None)
        if automatic is None:  # versions that do not keep what was asked for never reshard the root
            automatic = self._root.handle is not None and values[""] is True
        root = False if automatic else values.get("", False)
        inner = [value for path, value in values.items() if path]
        common = _most_common(inner, otherwise=True if automatic else root)
        settings: dict[str, Any] = {}
        if not (common is True and automatic):
            settings["reshard_after_forward"] = common
            if repr(root) != repr(common) and self._root.handle is not None:
                settings["root_reshard_after_forward"] = root
        others = {path: value for path, value in values.items() if path and repr(value) != repr(common)}
        return settings | ({"reshard_by_unit": others} if others else {})

    def _prefetch(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        names = {id(unit.owner): unit.paths[0] for unit in self._units}

        def targets(attribute: str) -> dict[str, list[str]]:
            return {names[id(state)]: [names[id(s)] for s in getattr(state, attribute, ())]
                    for state in self._states.values() if getattr(state, attribute, ())}

        order = [path for path in post_order(self._model) if path in self._states]
        grouped = any(len(unit.paths) > 1 for unit in self._units)  # "the next n" counts modules, and not units
        if forward := targets("_states_to_forward_prefetch"):
            inner = {path: its for path, its in forward.items() if path}
            n = None if grouped else _window(inner, order)
            if n is None or forward.get("", order[:1]) != order[:1]:
                settings["forward_prefetch_lists"] = forward
            else:
                settings["forward_prefetch_n"] = n
                if "" in forward:
                    settings["root_forward_prefetch"] = True
        if backward := targets("_states_to_backward_prefetch"):
            n = None if grouped else _window(backward, order[::-1])
            if n is None:
                settings["backward_prefetch_lists"] = backward
            else:
                settings["backward_prefetch_n"] = n
        if self._same("unshard_async_op", False):
            settings["unshard_async_op"] = True
        return settings

    def _reduction(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for attribute, key, none in (("gradient_divide_factor", "gradient_divide_factor", None),
                                     ("force_sum_reduction_for_comms", "force_sum", False)):
            values = self._each(attribute, none)
            if odd := [path for path, value in values.items() if path and value != none]:
                raise Refused(f"{attribute} is set on {odd[0]}; a recording has it for the root alone")
            if values.get("", none) != none:
                settings[key] = values[""]
        if kept := [path for path, value in self._each("unshard_in_backward", True).items() if not value]:
            settings["no_unshard_in_backward"] = kept
        if self._same("reduce_scatter_unused_params", False):
            settings["reduce_scatter_unused_params"] = True
        if (buffers := self._same("reduce_scatter_max_input_buffers", 1)) != 1:
            settings["reduce_scatter_max_input_buffers"] = buffers
        return settings

    def _shard_dim(self) -> int:
        parameters = [(p, shard_dim(p)) for group in self._groups.values() for p in group.fsdp_params]
        dim = max((d for _, d in parameters), default=0)
        if any(d != (dim if len(p._orig_size) > dim else 0) for p, d in parameters):
            raise Refused("parameters are sharded along different dimensions; a recording has one, and 0 for those "
                          "that have no such dimension")
        return dim

    def _refuse_unknown(self) -> None:
        managed = {id(p.sharded_param) for group in self._groups.values() for p in group.fsdp_params}
        for path, parameter in self._model.named_parameters():
            if id(parameter) not in managed:
                raise Refused(f"fully_shard ignores {clean(path)}; a recording has no ignored parameters")
        for path, group in self._groups.items():
            where = path or "the root"
            if getattr(group, "_all_reduce_hook", None) is not None:
                raise Refused(f"{where} has an all-reduce hook; a recording cannot say what it does")
            for name, usual in (("_all_gather_comm", "DefaultAllGather"), ("_reduce_scatter_comm", "DefaultReduceScatter")):
                if (comm := getattr(group, name, None)) is not None and type(comm).__name__ != usual:
                    raise Refused(f"{where} communicates with {type(comm).__name__}; a recording cannot say that")
            if getattr(group.mesh_info, "reduce_scatter_process_group", None) is not None:
                raise Refused(f"{where} has a reduce-scatter group of its own; a recording cannot say that")
            if getattr(group.mesh_info, "is_spmd_mesh", False):
                raise Refused(f"{where} combines FSDP with another parallelism; a recording has FSDP alone")


def _most_common(values: list[Any], otherwise: Any) -> Any:
    """The first of the most common ones; True and 1 are different."""
    if not values:
        return otherwise
    winner = Counter(map(repr, values)).most_common(1)[0][0]
    return next(value for value in values if repr(value) == winner)


def _window(targets: dict[str, list[str]], order: list[str]) -> int | None:
    """n, when every unit prefetches the next n of `order`; None when units do otherwise."""
    n = max(map(len, targets.values()), default=1)
    expected = {path: order[i + 1:i + 1 + n] for i, path in enumerate(order) if order[i + 1:i + 1 + n]}
    return n if targets == expected else None
