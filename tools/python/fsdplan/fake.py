"""A model and its batch without memory: every tensor is replaced by one that has a shape only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from .errors import Refused


def fake_mode(model: nn.Module | None = None) -> FakeTensorMode:
    """The mode in which the model was made, or a new one."""
    for tensor in [] if model is None else [*model.parameters(), *model.buffers()]:
        if isinstance(tensor, FakeTensor):
            tensor.fake_mode.allow_non_fake_inputs = True
            return tensor.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)


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
        with mode, _masks_as_with_values():
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
    if tensor.device.type != "meta":
        return tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor)
    with mode:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def _flatten_again(module: nn.Module) -> None:
    if isinstance(module, nn.RNNBase):  # keeps a second list of its parameters
        module._flat_weights = [getattr(module, name, None) for name in module._flat_weights_names]


@contextlib.contextmanager
def _masks_as_with_values() -> Iterator[None]:
    """transformers looks at position ids for packed sequences and, where it cannot, makes a mask that training does not have."""
    masking = sys.modules.get("transformers.masking_utils")
    if not hasattr(masking, "find_packed_sequence_indices"):
        yield
        return
    before = masking.find_packed_sequence_indices
    masking.find_packed_sequence_indices = lambda *_args, **_kwargs: None
    try:
        yield
    finally:
        masking.find_packed_sequence_indices = before
