"""A model and its batch without memory: every tensor is replaced by one that has a shape only.

Small tensors of integers and truth values keep their values, and so does what is worked out from them alone: a forward may ask
whether a mask masks anything, and what it computes depends on the answer.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .errors import Refused
from .kernels import shape_rule

_MOST_VALUES = 1 << 20  # of a tensor that keeps them
_FILLED = {"aten.ones", "aten.zeros", "aten.full", "aten.arange"}


def fake_mode(model: nn.Module | None = None) -> FakeTensorMode:
    """The mode in which the model was made, or a new one."""
    for tensor in [] if model is None else [*model.parameters(), *model.buffers()]:
        if isinstance(tensor, FakeTensor):
            tensor.fake_mode.allow_non_fake_inputs = True
            return tensor.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)


@contextlib.contextmanager
def building() -> Iterator[None]:
    """A model and its batch that are made inside take no memory."""
    mode = fake_mode()
    with mode, _known_values(mode):
        yield


@contextlib.contextmanager
def without_memory(mode: FakeTensorMode, model: nn.Module, sample: Any) -> Iterator[Any]:
    """Inside, the model's parameters and buffers are fake and the mode is on; yields the fake batch.

    What is on the meta device comes to the CPU, where operators are chosen as in a real run.
    """
    known: dict[torch.Tensor, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if tensor not in known:
            known[tensor] = _fake(mode, tensor)
        return known[tensor]

    before: list[tuple[dict[str, Any], dict[str, Any]]] = []
    try:
        for module in model.modules():
            for slots in (module._parameters, module._buffers):
                before.append((slots, dict(slots)))
                slots.update((name, fake(tensor)) for name, tensor in slots.items() if tensor is not None)
            _flatten_again(module)
        batch = tree_map(lambda value: fake(value) if isinstance(value, torch.Tensor) else value, sample)
        with mode, _known_values(mode), _masks_as_with_values():
            yield batch
    finally:
        for slots, tensors in before:
            slots.update(tensors)
        for module in model.modules():
            _flatten_again(module)


def device_of(model: nn.Module, batch: Any) -> str:
    tensors = [*model.parameters(), *model.buffers(), *(t for t in tree_leaves(batch) if isinstance(t, torch.Tensor))]
    kinds = sorted({tensor.device.type for tensor in tensors})
    if len(kinds) > 1:
        raise Refused(f"the model and its batch are on {' and '.join(kinds)}; an export has one device")
    return kinds[0] if kinds else "cpu"


def _fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        raise Refused("a lazy module has no shape yet; run one forward before")
    if isinstance(tensor, FakeTensor) and tensor.fake_mode is not mode:
        raise Refused("the model and its batch were made in different fake modes")
    if isinstance(tensor, FakeTensor):
        if tensor.is_floating_point():
            tensor.constant = None  # a weight that was made of ones is trained
        return tensor
    if tensor.device.type != "meta":
        if _has_values(tensor):  # of its own, which the forward may change
            return mode.fake_tensor_converter.from_real_tensor(mode, tensor.clone(), make_constant=True)
        return mode.from_tensor(tensor)
    with mode:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def _flatten_again(module: nn.Module) -> None:
    if isinstance(module, nn.RNNBase):  # keeps a second list of its parameters
        module._flat_weights = [getattr(module, name, None) for name in module._flat_weights_names]


def _has_values(tensor: torch.Tensor) -> bool:
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    return whole and tensor.layout is torch.strided and tensor.numel() <= _MOST_VALUES


class _Rules(TorchDispatchMode):
    """What is filled has known values, as masks of ones do; some operators have rules of their own."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = shape_rule(func)(*args, **kwargs)
        if str(func._overloadpacket) not in _FILLED or result.device.type != "cpu" or result.numel() > _MOST_VALUES:
            return result
        with no_dispatch():
            values = func(*args, **kwargs)
        return self._mode.fake_tensor_converter.from_real_tensor(self._mode, values, make_constant=True)


@contextlib.contextmanager
def _known_values(mode: FakeTensorMode) -> Iterator[None]:
    """torch follows the values of tensors with one element; here of those with some more."""
    usual = mode.may_turn_const
    mode.may_turn_const = lambda tensor: usual(tensor) or (  # type: ignore[method-assign]
        tensor.device.type == "cpu" and type(tensor) is torch.Tensor and _has_values(tensor))
    try:
        with _Rules(mode):
            yield
    finally:
        mode.may_turn_const = usual  # type: ignore[method-assign]


@contextlib.contextmanager
def _masks_as_with_values() -> Iterator[None]:
    """transformers takes tensors without memory for tracing and then makes masks that training does not have."""
    masking = sys.modules.get("transformers.masking_utils")
    before = getattr(masking, "is_tracing", None)
    if before is None:
        yield
        return
    masking.is_tracing = lambda tensor=None: before(tensor) and getattr(tensor, "constant", None) is None
    try:
        yield
    finally:
        masking.is_tracing = before
