"""Reads the settings of FullyShardedDataParallel."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed.fsdp import BackwardPrefetch

from .errors import Refused
from .uniform import mixed_precision, uniform
from .units import Unit

_HYBRID = {"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"}


class FlatSettings:
    """Settings of FullyShardedDataParallel, read from its modules."""

    def __init__(self, units: list[Unit]) -> None:
        self._modules = {unit.fqn: unit.owner for unit in units}
        self._root = units[0].owner

    def read(self) -> dict[str, Any]:
        self._refuse_unknown()
        settings: dict[str, Any] = {}
        strategies = {path: module.sharding_strategy.name for path, module in self._modules.items()}
        if (strategy := strategies[""]) != "FULL_SHARD":
            settings["strategy"] = strategy
        if others := {path: name for path, name in strategies.items() if name != strategy}:
            settings["strategy_by_unit"] = others
        if (mesh := self._mesh(strategies)) is not None:
            settings["mesh"] = mesh
        if mixed := uniform("mixed_precision", {path: mixed_precision(m.mixed_precision, type(m.mixed_precision)())
                                                 for path, m in self._modules.items()}):
            settings["mp"] = mixed
        if not self._same("use_orig_params", "_use_orig_params"):
            settings["use_orig_params"] = False
        if (prefetch := self._same("backward_prefetch")) is not BackwardPrefetch.BACKWARD_PRE:
            settings["backward_prefetch"] = None if prefetch is None else prefetch.name
        if self._same("forward_prefetch"):
            settings["forward_prefetch"] = True
        if not self._same("limit_all_gathers"):
            settings["limit_all_gathers"] = False
        if uniform("cpu_offload", {path: m.cpu_offload.offload_params for path, m in self._modules.items()}):
            settings["cpu_offload"] = True
        return settings

    def _same(self, what: str, attribute: str | None = None) -> Any:
        return uniform(what, {path: getattr(m, attribute or what) for path, m in self._modules.items()})

    def _mesh(self, strategies: dict[str, str]) -> list[int] | None:
        shard = uniform("the size of the sharding group",
                         {path: m.process_group.size() for path, m in self._modules.items()})
        replicas = {m._inter_node_pg.size() for path, m in self._modules.items() if strategies[path] in _HYBRID}
        replicate = replicas.pop() if replicas else 1
        if shard * replicate != dist.get_world_size() or replicas:
            raise Refused(f"FSDP uses {replicate} x {shard} of {dist.get_world_size()} ranks; a recording needs all of them")
        return [replicate, shard] if any(name in _HYBRID for name in strategies.values()) else None

    def _refuse_unknown(self) -> None:
        for path, module in self._modules.items():
            where = path or "the root"
            if getattr(module, "_ignored_params", None):
                raise Refused(f"FSDP ignores parameters of {where}; a recording has no ignored parameters")
            if getattr(module, "_comm_hook", None) is not None:
                raise Refused(f"{where} has a communication hook; a recording cannot say what it does")
            if getattr(module, "_fsdp_extension", None) is not None:
                raise Refused(f"{where} combines FSDP with another parallelism; a recording has FSDP alone")
