"""Reads the `case` of a recording off a wrapped model: every setting that decides what a step does.

Only what differs from a default is written (README of the schema). What the format has no word for is refused.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, CheckpointWrapper
from torch.distributed.fsdp import BackwardPrefetch

from .compat import CPUOffloadPolicy, FSDPModule
from .errors import Refused
from .names import clean, innermost_modules, post_order, short_dtype
from .units import Unit, engine_of, reshard_after_forward, shard_dim

_HYBRID = {"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"}


def read_case(root: nn.Module, units: list[Unit], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Everything but the names, the number of iterations and what only the training loop shows."""
    engine = engine_of(root)
    _refuse_compiled(root)
    settings: dict[str, Any] = {"engine": engine}
    if engine == "fsdp1":
        settings |= _FlatSettings(units).read()
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            settings["debug_detail"] = True
    else:
        settings |= _ShardedSettings(root, units).read()
    if (checkpointing := read_checkpointing(root)) is not None:
        settings["ac"] = checkpointing
    if (optim := _read_optimizer(root, optimizer)) != "adamw":
        settings["optim"] = optim
    settings["world"] = dist.get_world_size()
    wrapped = {path for unit in units for path in unit.paths}
    settings["wrap"] = [path for path in post_order(root) if path in wrapped]
    return settings


def _uniform(what: str, values: dict[str, Any]) -> Any:
    """The one value; `values` maps the path of a unit to its value."""
    counts = Counter(map(repr, values.values()))
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        path, odd = next((path, value) for path, value in values.items() if repr(value) != usual)
        raise Refused(f"{what} of {path or 'the root'} is {odd} and {usual} elsewhere; a recording has one for all units")
    return next(iter(values.values()))


def _dtypes(policy: Any, defaults: Any) -> dict[str, Any]:
    """The fields of a mixed-precision dataclass that differ from those of `defaults`."""
    found = {}
    for field in dataclasses.fields(policy):
        value = getattr(policy, field.name)
        if not field.name.startswith("_") and value != getattr(defaults, field.name):
            found[field.name] = short_dtype(value) if isinstance(value, torch.dtype) else value
    return found


class _FlatSettings:
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
        if mixed := _uniform("mixed_precision", {path: _dtypes(m.mixed_precision, type(m.mixed_precision)())
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
        if _uniform("cpu_offload", {path: m.cpu_offload.offload_params for path, m in self._modules.items()}):
            settings["cpu_offload"] = True
        return settings

    def _same(self, what: str, attribute: str | None = None) -> Any:
        return _uniform(what, {path: getattr(m, attribute or what) for path, m in self._modules.items()})

    def _mesh(self, strategies: dict[str, str]) -> list[int] | None:
        shard = _uniform("the size of the sharding group",
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


class _ShardedSettings:
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
        settings |= self._mixed_precision()
        settings |= self._reshard()
        if grouped := [unit.paths for unit in self._units if len(unit.paths) > 1]:
            settings["grouped"] = grouped
        settings |= self._prefetch()
        settings |= self._reduction()
        if _uniform("offload_policy", {path: isinstance(g.offload_policy, CPUOffloadPolicy)
                                       for path, g in self._groups.items()}):
            settings["cpu_offload"] = True
        if dim := self._shard_dim():
            settings["shard_dim"] = dim
        return settings

    def _each(self, attribute: str, default: Any = None) -> dict[str, Any]:
        return {path: getattr(group, attribute, default) for path, group in self._groups.items()}

    def _same(self, attribute: str, default: Any = None) -> Any:
        return _uniform(attribute, self._each(attribute, default))

    def _mesh(self) -> list[int] | None:
        def sizes(info: Any) -> list[int]:
            if not hasattr(info, "shard_mesh_size"):
                raise Refused("a unit is replicated only; a recording has sharded units")
            return [getattr(info, "replicate_mesh_size", 0), info.shard_mesh_size]

        replicate, shard = _uniform("the mesh", {path: sizes(g.mesh_info) for path, g in self._groups.items()})
        if max(replicate, 1) * shard != dist.get_world_size():
            raise Refused(f"fully_shard uses {max(replicate, 1)} x {shard} of {dist.get_world_size()} ranks; a recording "
                          "needs all of them")
        return [replicate, shard] if replicate else None

    def _mixed_precision(self) -> dict[str, Any]:
        found = {path: _dtypes(s._mp_policy, type(s._mp_policy)()) for path, s in self._states.items()}
        root = found[""]
        inner = _uniform("mp_policy", {path: mp for path, mp in found.items() if path}) if len(found) > 1 else root
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
        if any("," in path for path in others):
            raise Refused("modules grouped in one fully_shard call have their own reshard_after_forward")
        return settings | ({"reshard_by_unit": others} if others else {})

    def _prefetch(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        names = {id(state): path for path, state in self._states.items()}

        def targets(attribute: str) -> dict[str, list[str]]:
            return {path: [names[id(s)] for s in getattr(state, attribute, ())]
                    for path, state in self._states.items() if getattr(state, attribute, ())}

        order = [path for path in post_order(self._model) if path in self._states]
        if forward := targets("_states_to_forward_prefetch"):
            root = forward.pop("", None)
            settings["forward_prefetch_n"] = _window("forward", forward, order)
            if root is not None:
                if root != order[:1]:
                    raise Refused("the root prefetches more than the first unit in forward; a recording cannot say that")
                settings["root_forward_prefetch"] = True
        if backward := targets("_states_to_backward_prefetch"):
            settings["backward_prefetch_n"] = _window("backward", backward, order[::-1])
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


def _window(direction: str, targets: dict[str, list[str]], order: list[str]) -> int:
    """n, when every unit prefetches the next n of `order`."""
    n = max(map(len, targets.values()), default=1)
    expected = {path: order[i + 1:i + 1 + n] for i, path in enumerate(order) if order[i + 1:i + 1 + n]}
    if targets != expected:
        odd = next((path for path in [*targets, *expected] if targets.get(path) != expected.get(path)), "")
        raise Refused(f"{odd or 'the root'} prefetches {targets.get(odd, [])} in {direction}; a recording can only say "
                      f"that every unit prefetches the next {n} in the order children before parents")
    return n


def read_checkpointing(root: nn.Module) -> dict[str, Any] | None:
    """Activation checkpointing by wrappers or by transformers' own switch; None when there is none."""
    wrappers = {clean(path): module for path, module in root.named_modules() if hasattr(module, "_checkpoint_wrapped_module")}
    for path, wrapper in wrappers.items():
        if not isinstance(wrapper, CheckpointWrapper):
            raise Refused(f"{path} is in a {type(wrapper).__name__}; a recording knows checkpoints alone")
        function = wrapper.checkpoint_fn
        if function.func is not torch.utils.checkpoint.checkpoint or set(function.keywords) - {"use_reentrant"}:
            raise Refused(f"{path} is checkpointed with a function or with options of its own; a recording knows plain "
                          "checkpoints")
    layers = [m for m in root.modules() if any(c.__name__ == "GradientCheckpointingLayer" for c in type(m).__mro__)]
    if len({bool(layer.gradient_checkpointing) for layer in layers}) > 1:
        raise Refused("the model checkpoints some of its layers; a recording knows all or none")
    switched = [module for module in root.modules() if getattr(module, "gradient_checkpointing", False) is True]
    if wrappers and switched:
        raise Refused("checkpoint wrappers and the model's own gradient checkpointing at once; a recording has one")
    if switched:
        reentrant = _uniform("use_reentrant", {type(m).__name__: _reentrant(m) for m in switched
                                               if hasattr(m, "_gradient_checkpointing_func")} or {"": False})
        return {"mode": "hf"} | ({"reentrant": True} if reentrant else {})
    if not wrappers:
        return None
    modes = {path: "outside" if _holds_unit(wrapper) else "inside" for path, wrapper in wrappers.items()}
    reentrant = _uniform("checkpoint_impl", {path: w.checkpoint_impl is CheckpointImpl.REENTRANT
                                             for path, w in wrappers.items()})
    mode = _uniform("the side of the checkpoint", modes)
    return {"mode": mode, "modules": [path for path in post_order(root) if path in wrappers]} | (
        {"reentrant": True} if reentrant else {})


def _holds_unit(wrapper: CheckpointWrapper) -> bool:
    inner = wrapper._checkpoint_wrapped_module
    return isinstance(inner, FSDPModule) or hasattr(inner, "_fsdp_wrapped_module")


def _reentrant(module: nn.Module) -> bool:
    function = module._gradient_checkpointing_func
    return bool(function.keywords.get("use_reentrant", True)) if isinstance(function, functools.partial) else False


def _refuse_compiled(root: nn.Module) -> None:
    for path, module in innermost_modules(root).items():
        if getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule":
            raise Refused(f"{path or 'the model'} is compiled; record without torch.compile")


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


def read_micro_batch(root: nn.Module, units: list[Unit]) -> dict[str, bool]:
    """The switches for gradient accumulation as they stand now."""
    if engine_of(root) == "fsdp1":
        sync = _uniform("no_sync", {unit.fqn: unit.owner._sync_gradients for unit in units})
        return {"reduce": sync, "all_reduce": sync, "reshard": True, "last": True}
    groups = {unit.fqn: unit.handle for unit in units if unit.handle is not None}

    def same(attribute: str, older: str = "") -> bool:
        return bool(_uniform(attribute, {path: getattr(g, attribute, getattr(g, older, True))
                                         for path, g in groups.items()}))

    reduce = same("reduce_grads", "reduce_scatter_grads")
    return {"reduce": reduce, "all_reduce": same("all_reduce_grads") if reduce else False,
            "reshard": same("reshard_after_backward"), "last": bool(units[0].owner._state_ctx.is_last_backward)}


def accumulation(micro_batches: list[dict[str, bool]], hybrid: bool) -> dict[str, Any] | None:
    """The `accum` of a case from what `read_micro_batch` saw at each backward of one iteration."""
    *earlier, last = micro_batches
    if not all(last.values()):
        raise Refused("the last backward before the optimizer's step does not reduce gradients in full")
    if not earlier:
        return None
    if any(flags != earlier[0] for flags in earlier):
        raise Refused("the micro-batches of a step synchronize gradients in different ways")
    first = earlier[0]
    accum: dict[str, Any] = {"n": len(micro_batches)}
    if first["reduce"] and (first["all_reduce"] or not hybrid):
        mode = "sync"
    else:
        mode = "no_all_reduce" if first["reduce"] else "no_sync"
    accum["mode"] = mode
    if mode == "no_sync":
        if not first["reshard"]:
            accum["keep_unsharded"] = True
        if not first["last"]:
            accum["last_backward"] = True
    elif not (first["reshard"] and first["last"]):
        raise Refused("parameters are kept unsharded between micro-batches that reduce gradients; a recording cannot "
                      "say that")
    return accum
