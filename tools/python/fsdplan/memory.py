"""Counts the bytes of living storages in the order of the program."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch._guards import active_fake_mode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.weak import WeakIdKeyDictionary

from .compat import DTensor


class LiveBytes(TorchDispatchMode):
    """Follows every storage that an operator returns, and those that `track` names, until it is freed.

    `UntypedStorage.resize_`, with which both runtimes free and allocate parameters again, is followed too. Freed means
    freed by the program: an allocator that must wait for another stream holds a block for longer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self.by: dict[str, int] = {}
        self.peak_by: dict[str, int] = {}
        self.default = "act"  # category of what is allocated outside of `tagged`
        self._since_last = 0
        self._categories: list[str] = []
        self._records: Any = WeakIdKeyDictionary()  # storage -> [category, bytes]
        self._fake_mode: Any = None
        self._resize: Any = None

    def take(self) -> list[int]:
        """[live bytes, their peak since the last call]"""
        result = [self.live, self._since_last]
        self._since_last = self.live
        return result

    def begin_iteration(self) -> None:
        self.peak = self._since_last = self.live
        self.peak_by = self.now_by()

    def now_by(self) -> dict[str, int]:
        return {category: n for category, n in self.by.items() if n}

    @contextlib.contextmanager
    def tagged(self, category: str) -> Iterator[None]:
        self._categories.append(category)
        try:
            yield
        finally:
            self._categories.pop()

    def track(self, tensor: torch.Tensor, category: str | None = None, retag: bool = False) -> None:
        """Counts the tensor's storage from now on; with `retag` one that is counted already changes its category."""
        if isinstance(tensor, DTensor):
            tensor = tensor._local_tensor
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        record = self._records.get(storage)
        if record is None:
            self._start(storage, category)
            return
        if retag and category and record[0] != category:
            self.by[record[0]] -= record[1]
            self.by[category] = self.by.get(category, 0) + record[1]
            record[0] = category
        self._resized(storage)

    def _start(self, storage: Any, category: str | None) -> None:
        record = [category or (self._categories[-1] if self._categories else self.default), storage.nbytes()]
        self._records[storage] = record
        self._add(*record)
        weakref.finalize(storage, self._gone, record)

    def _add(self, category: str, n: int) -> None:
        self.by[category] = self.by.get(category, 0) + n
        self.live += n
        if n > 0:
            self._since_last = max(self._since_last, self.live)
            if self.live > self.peak:
                self.peak, self.peak_by = self.live, self.now_by()

    def _gone(self, record: list[Any]) -> None:
        self._add(record[0], -record[1])
        record[1] = 0

    def _resized(self, storage: Any) -> None:
        record = self._records.get(storage)
        if record is not None and (change := storage.nbytes() - record[1]):
            record[1] += change
            self._add(record[0], change)

    def __enter__(self) -> LiveBytes:
        self._fake_mode = active_fake_mode()
        self._resize = original = torch.UntypedStorage.resize_

        @functools.wraps(original)
        def resize_(storage: Any, n: int) -> Any:
            result = original(storage, n)
            if storage in self._records:
                self._resized(storage)
            else:
                self._start(storage, None)
            return result

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # its operators on local tensors come here next
        result = func(*args, **(kwargs or {}))
        if active_fake_mode() is self._fake_mode:  # shape propagation of DTensor allocates nothing
            for value in tree_iter(result):
                if isinstance(value, torch.Tensor):
                    self.track(value)
        return result
