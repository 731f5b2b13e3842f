"""Work of one operator: floating-point operations as torch counts them, and bytes read and written."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

#: Read only as much of their first argument as they return.
_PICK = {"aten.embedding", "aten.index", "aten.index_select", "aten.gather"}
#: Take a tensor for its shape alone.
_SHAPE_ONLY = ("_like", "aten.new_")
_EMPTY = {"aten.empty", "aten.empty_like", "aten.new_empty", "aten.empty_strided", "aten.new_empty_strided"}


def flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    count = flop_registry.get(func._overloadpacket)
    return int(count(*args, **kwargs, out_val=result)) if count else 0


def touched_bytes(func: Any, arguments: list[torch.Tensor], results: list[torch.Tensor]) -> int:
    """Bytes of the tensors that go in and come out; what a broadcast repeats is touched once."""
    name = str(func._overloadpacket)
    if name in _EMPTY:
        return 0
    out = sum(map(_bytes, results))
    if name.endswith(_SHAPE_ONLY[0]) or name.startswith(_SHAPE_ONLY[1]):
        return out
    if name in _PICK and arguments:
        return 2 * out + sum(map(_bytes, arguments[1:]))
    return out + sum(map(_bytes, arguments))


def _bytes(tensor: torch.Tensor) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        elements *= size if stride or not size else 1
    return elements * tensor.element_size()
