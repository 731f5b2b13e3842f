"""Follows one forward and backward operator by operator: what each allocates, what autograd keeps, when memory goes.

Autograd is given descriptions of the tensors that it wants to keep, so that in the forward memory goes when the program lets
go of it; in the backward it gets new tensors of the same shape. It is seen when autograd lets go of a description.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from .costs import flops, touched_bytes
from .errors import Refused

ACCUMULATE = "AccumulateGrad"
OUTSIDE = -1  # storage of a parameter, a buffer, an input or a constant: it was there before


@dataclass
class Row:
    """One operator that ran."""

    name: str
    call: int  # of the innermost module in the forward, or -1
    backward: bool
    node: int  # sequence number of the newest node (forward), of the running node (backward)
    writes: bool
    again: bool = False  # a forward that runs again inside of the backward
    flops: int = 0
    bytes: int = 0
    new: list[int] = field(default_factory=list)
    gradient: list[tuple[int, nn.Parameter]] = field(default_factory=list)
    accumulates: bool = False  # runs in AccumulateGrad, not in a node of an operator
    own_first: int = OUTSIDE  # storage of the first argument, if that is dense and not a view of another tensor


@dataclass(eq=False)
class Saved:
    """Stands for a tensor that autograd keeps."""

    storage: int
    row: int  # the last row before it was kept
    like: tuple[Any, ...]  # size, strides, offset, type, device
    outside: torch.Tensor | None  # the tensor itself when its storage is not accounted for


@dataclass
class Release:
    """When autograd let go of a tensor, and the node that it kept the tensor for."""

    saved_at: int
    storage: int
    row: int
    node: int | None  # None: no backward was running, the graph was dropped


class Operators(TorchDispatchMode):
    """Collects rows between `with` and its end; the caller tells when backward begins and ends."""

    def __init__(self, open_calls: list[int]) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.bytes: list[int] = []  # of each storage
        self.gone: dict[int, int] = {}  # storage -> row after which the program has no reference any more
        self.releases: list[Release] = []
        self.kept: Counter[int] = Counter()  # storage -> tensors that autograd still keeps
        self.last_copy: dict[int, int] = {}  # storage -> row after which the last tensor that was unpacked from it went
        self.backward = False
        self.node: int | None = None  # sequence number of the node that runs backward
        self.runs: list[tuple[int, int]] = []  # (node, number of rows before it ran)
        self._open_calls = open_calls  # in the forward; somebody else fills it
        self._closed = False
        self._ids: Any = WeakIdKeyDictionary()  # storage -> its number, or OUTSIDE
        self._copies: Any = WeakIdKeyDictionary()  # storage of an unpacked tensor -> the number of the original
        self._gradients: dict[nn.Parameter, int] = {}
        self._paused = False

    def outside(self, tensor: torch.Tensor) -> None:
        """Leaves a tensor's memory out of the account."""
        self._ids.setdefault(_storage(tensor), OUTSIDE)

    def begin_backward(self, value: torch.Tensor) -> None:
        self.backward = True
        self.node = value.grad_fn._sequence_nr()

    def run_node(self, number: int) -> None:
        self.node = number
        self.runs.append((number, len(self.rows)))

    def end_backward(self) -> None:
        self.node = None

    def close(self) -> None:
        """What ends from now on is not seen."""
        self._closed = True

    def gradient(self, parameter: nn.Parameter) -> None:
        """For a hook after a gradient was accumulated."""
        number = self._ids.get(_storage(parameter.grad), OUTSIDE)
        if number != OUTSIDE and self._gradients.get(parameter) != number:
            self._gradients[parameter] = number
            self.rows[-1].gradient.append((number, parameter))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        before = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        for tensor in before:
            if _storage(tensor) not in self._copies:
                self.outside(tensor)
        newest = torch.autograd._get_sequence_nr() - 1
        result = func(*args, **kwargs)
        after = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        if not after and not func._schema.is_mutable:
            return result  # asks for a size, a device and the like
        row = Row(str(func), self._open_calls[-1] if self._open_calls else -1, self.backward,
                  (self.node if self.node is not None else -1) if self.backward else newest, func._schema.is_mutable)
        row.again = bool(self.runs) and torch.is_grad_enabled()
        row.accumulates = self.backward and type(torch._C._current_autograd_node()).__name__ == ACCUMULATE
        row.own_first = self._own(before[0]) if self.backward and before else OUTSIDE
        self.rows.append(row)
        constant_view = func.is_view and not any(isinstance(t, torch._subclasses.FakeTensor) for t in before)
        for tensor in after:
            self._result(tensor, row, OUTSIDE if constant_view else None)
        if row.new or row.writes:
            row.bytes = touched_bytes(func, before, after)
            row.flops = flops(func, args, kwargs, result)
        return result

    def _own(self, tensor: torch.Tensor) -> int:
        if tensor._is_view() or not _dense(tensor):
            return OUTSIDE
        return self._ids.get(_storage(tensor), OUTSIDE)

    def _result(self, tensor: torch.Tensor, row: Row, known: int | None) -> None:
        storage = _storage(tensor)
        if storage in self._copies:
            return
        number = self._ids.get(storage)
        if known is not None and number is None:
            self._ids[storage] = known
            return
        if number == OUTSIDE or (number is not None and self.bytes[number] == storage.nbytes()):
            return
        if number is not None:  # resized: the old memory goes when the new is there
            self.gone[number] = len(self.rows) - 1
        if not storage.nbytes():
            return
        number = self._ids[storage] = len(self.bytes)
        self.bytes.append(storage.nbytes())
        row.new.append(number)
        _when_it_ends(storage, self._end, number)

    def _end(self, number: int) -> None:
        if not self._closed:
            self.gone.setdefault(number, len(self.rows) - 1)

    # What autograd keeps ---------------------------------------------------------------------------------------------

    def pack(self, tensor: torch.Tensor) -> Saved:
        storage = _storage(tensor)
        number = self._ids.get(storage, OUTSIDE)
        like = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device)
        saved = Saved(number, len(self.rows) - 1, like, tensor if number == OUTSIDE else None)
        if number != OUTSIDE:
            self.kept[number] += 1
            _when_it_ends(saved, self._release, saved.row, number)
        return saved

    def unpack(self, saved: Saved) -> torch.Tensor:
        if saved.outside is not None:
            return saved.outside
        size, strides, offset, dtype, device = saved.like
        self._paused = True
        try:
            copy = torch.empty(-(-self.bytes[saved.storage] // dtype.itemsize), dtype=dtype, device=device)
            copy = copy.as_strided(size, strides, offset)
        finally:
            self._paused = False
        storage = _storage(copy)
        self._copies[storage] = saved.storage
        _when_it_ends(storage, self._copy_end, saved.storage)
        return copy

    def _release(self, row: int, number: int) -> None:
        if self._closed:
            return
        self.kept[number] -= 1
        self.releases.append(Release(row, number, len(self.rows) - 1, self.node if self.backward else None))

    def _copy_end(self, number: int) -> None:
        if not self._closed:
            self.last_copy[number] = len(self.rows) - 1


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    if tensor.layout is not torch.strided:
        raise Refused(f"a tensor is {str(tensor.layout).removeprefix('torch.')}; an export knows dense tensors alone")
    return tensor.untyped_storage()


def _dense(tensor: torch.Tensor) -> bool:
    """Without holes and overlaps, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _when_it_ends(what: Any, then: Callable[..., None], *arguments: Any) -> None:
    weakref.finalize(what, then, *arguments).atexit = False


@dataclass(frozen=True)
class Node:
    """A node of the autograd graph."""

    name: str
    feeds: tuple[tuple[int, int], ...]  # (node, which input of it); AccumulateGrad has a negative number


def watch_nodes(value: torch.Tensor, begin: Callable[[int], None]) -> dict[int, Node]:
    """Has `begin` called with the sequence number of every node that is about to run backward from `value`.

    Returns the nodes by number. None of PyTorch's own is kept alive.
    """
    nodes: dict[int, Node] = {}
    pending = [value.grad_fn]
    while pending:
        node = pending.pop()
        number = _number(node)
        if number < 0 or number in nodes:
            continue
        feeds = [(successor, place) for successor, place in node.next_functions if successor is not None]
        nodes[number] = Node(type(node).__name__, tuple((_number(successor), place) for successor, place in feeds))
        node.register_prehook(_before(begin, number))
        pending.extend(successor for successor, _ in feeds)
    return nodes


def _number(node: Any) -> int:
    return -id(node.variable) if type(node).__name__ == ACCUMULATE else node._sequence_nr()


def _before(begin: Callable[[int], None], number: int) -> Callable[[Any], None]:
    def hook(_gradients: Any) -> None:
        begin(number)
    return hook
