"""The list of events, and what a tap needs to replace a function of PyTorch for a while."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .errors import Refused
from .memory import LiveBytes
from .names import short_dtype, torch_version

# A recompute that stopped early never came to its `fwd_end`; these events are never inside of one.
_AFTER_RECOMPUTE = {"pre_bwd", "post_bwd", "post_bwd_frozen", "final_begin", "backward_end"}
_INHERITED = object()


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


class Tape:
    """Collects the events of the running iteration in the order of the program."""

    def __init__(self, memory: LiveBytes) -> None:
        self.memory = memory
        self.events: list[dict[str, Any]] = []
        self.units: dict[Any, str] = {}  # flat parameter handle or parameter group -> path of its unit
        self.groups: dict[int, str] = {}  # id of a process group -> what it is for
        self.stage = "fwd"  # fwd, bwd, clip or opt
        self.prefetching = 0
        self.forward_depth = 0
        self.clipped = self.clipping = False
        self.problem: str | None = None  # the first thing that the format cannot say
        self._unit: list[Any] = [None]

    def refuse(self, problem: str) -> None:
        self.problem = self.problem or problem

    def name_group(self, name: str, group: Any) -> None:
        if group is not None:
            self.groups.setdefault(id(group), name)

    def add(self, kind: str, unit: Any = None, **more: Any) -> None:
        if kind in _AFTER_RECOMPUTE:
            self.forward_depth = 0
        event: dict[str, Any] = {"e": kind}
        if (path := self.units.get(unit, unit)) is not None:
            event["u"] = path
        event["p"] = self._phase()
        event.update((key, value) for key, value in more.items() if value is not None)
        event["m"] = self.memory.take()
        self.events.append(event)

    def collective(self, kind: str, sent: torch.Tensor, received: int, group: Any, op: str | None = None) -> None:
        group = group if group is not None else dist.group.WORLD
        prefetched = 1 if self.prefetching and kind == "all_gather" else None
        self.add(kind, self._unit[-1], dt=short_dtype(sent.dtype), **{"in": sent.numel()}, out=received,
                 g=dist.get_world_size(group), grp=self.groups.get(id(group), "world"), op=op, pf=prefetched)

    def inside_runtime(self) -> bool:
        """Whether FSDP is at work, so that a collective is its own."""
        return self._unit[-1] is not None or self.clipping

    @contextlib.contextmanager
    def within(self, unit: Any, category: str | None = None) -> Iterator[None]:
        """Collectives belong to `unit`, and new storages to `category`."""
        self._unit.append(unit)
        try:
            with self.memory.tagged(category) if category else contextlib.nullcontext():
                yield
        finally:
            self._unit.pop()

    @contextlib.contextmanager
    def clip(self) -> Iterator[None]:
        """The runtime clips gradients; its collective belongs to no unit."""
        self.clipped = self.clipping = True
        try:
            yield
        finally:
            self.clipping = False

    @contextlib.contextmanager
    def prefetch(self) -> Iterator[None]:
        self.prefetching += 1
        try:
            yield
        finally:
            self.prefetching -= 1

    def _phase(self) -> str:
        if in_backward():
            return "re" if self.forward_depth else "bwd"
        return self.stage


class Patches:
    """Replaces attributes and puts the old ones back."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Sets `owner.name` to `make(owner.name)`; static methods stay static."""
        if not hasattr(owner, name):
            raise Refused(f"torch {torch_version()} has no {getattr(owner, '__name__', owner)}.{name}, "
                          "which the recorder listens to; it was tried with 2.4 to 2.15")
        original = getattr(owner, name)
        stored = vars(owner).get(name, _INHERITED)
        replacement = functools.wraps(original)(make(original))
        self._saved.append((owner, name, stored))
        setattr(owner, name, staticmethod(replacement) if isinstance(stored, staticmethod) else replacement)

    def undo(self) -> None:
        for owner, name, stored in reversed(self._saved):
            if stored is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, stored)
        self._saved.clear()
