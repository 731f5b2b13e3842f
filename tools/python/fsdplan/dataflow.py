"""Which module is called when in a forward, and which calls feed which.

The order of a backward pass is autograd's and follows from this. The calls come from hooks, the flow from a walk over
the autograd graph of one forward in which every floating-point parameter and input requires a gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from .errors import Refused
from .tree import module_tree

INPUT = -1  # stands for the model's input in a list of calls


@dataclass(frozen=True)
class Description:
    """What a recording must know of the model before it is wrapped."""

    name: str
    tree: dict[str, Any]  # the module tree with forward_order, dataflow and output_from
    loss_in_model: bool = False  # backward starts from a tensor in the model's output, and not from what is made of it


def default_loss(output: Any) -> torch.Tensor:
    """The output's own `loss`; else the mean square of `logits`, `last_hidden_state` or the tensors in the output."""
    if isinstance(loss := getattr(output, "loss", None), torch.Tensor):
        return loss
    for name in ("logits", "last_hidden_state"):
        if isinstance(tensor := getattr(output, name, None), torch.Tensor):
            return tensor.float().square().mean()
    losses = [t.float().square().mean() for t in _tensors(output) if t.requires_grad]
    if not losses:
        raise Refused("nothing in the model's output requires a gradient")
    return losses[0] if len(losses) == 1 else torch.stack(losses).sum()


def loss_in_words(loss: Callable[[Any], torch.Tensor], output: Any) -> str:
    if loss is not default_loss:
        return f"{loss.__module__}.{loss.__qualname__}" if hasattr(loss, "__qualname__") else type(loss).__qualname__
    if isinstance(getattr(output, "loss", None), torch.Tensor):
        return "the output's loss"
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(output, name, None), torch.Tensor):
            return f"mean square of {name}"
    return "mean square of the output's tensors"


def describe(model: nn.Module, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, *,
             loss: Callable[[Any], torch.Tensor] = default_loss, name: str | None = None) -> Description:
    """Runs one forward of the plain model and writes down its tree, the order of its calls and their dataflow.

    Call it before FSDP and activation checkpointing are applied. `model(*args, **kwargs)` must be a forward as in
    training and `loss(output)` what is run backward. Buffers, gradients and random state are as before afterwards.
    """
    name = name or type(model).__name__
    tree = module_tree(model, name)
    with _everything_differentiable(model):
        calls, loss_in_model = _calls(model, args, kwargs or {}, loss)
    return Description(name, tree | calls, loss_in_model)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


@contextlib.contextmanager
def _everything_differentiable(model: nn.Module) -> Iterator[None]:
    required = [(p, p.requires_grad) for p in model.parameters()]
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    for parameter, _ in required:
        parameter.requires_grad_(parameter.is_floating_point())
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            yield
    finally:
        for parameter, value in required:
            parameter.requires_grad_(value)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _calls(model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any],
           loss: Callable[[Any], torch.Tensor]) -> tuple[dict[str, Any], bool]:
    """`forward_order`, `dataflow` and `output_from`, and whether the loss is a tensor of the output."""
    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(value.is_floating_point())

    args, kwargs = tree_map(own, (tuple(args), kwargs))
    trace = _Trace({id(t) for t in _tensors((args, kwargs))})
    handles = []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(trace.enter(path), with_kwargs=True))
        handles.append(module.register_forward_hook(trace.leave))
    try:
        output = model(*args, **kwargs)
        value = loss(output)
    finally:
        for handle in handles:
            handle.remove()
    calls = {"forward_order": trace.order, "dataflow": trace.dataflow(), "output_from": trace.sources([value])}
    return calls, any(value is tensor for tensor in _tensors(output))


_Origin = Any  # graph node that made a tensor, INPUT, or None for a constant


class _Trace:
    """Collects calls and the graph nodes that their outputs come from."""

    def __init__(self, inputs: set[int]) -> None:
        self.order: list[str] = []
        self._inputs = inputs
        self._open: list[int] = []
        self._callers: set[int] = set()
        self._arguments: dict[int, list[_Origin]] = {}
        self._made_by: dict[Any, int] = {}  # graph node -> leaf call
        self._alive: list[torch.Tensor] = []  # a node is known by identity, so its tensor must live on

    def enter(self, path: str) -> Callable[..., None]:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> None:
            call = len(self.order)
            self.order.append(path)
            self._callers.update(self._open[-1:])
            self._open.append(call)
            self._arguments[call] = self._origins(_tensors((args, kwargs)))
        return hook

    def leave(self, _module: nn.Module, _args: Any, output: Any) -> None:
        call = self._open.pop()
        if call in self._callers:
            return
        for tensor in _tensors(output):
            if tensor.grad_fn is not None:
                self._made_by.setdefault(tensor.grad_fn, call)
                self._alive.append(tensor)

    def dataflow(self) -> list[dict[str, Any]]:
        return [{"call": call, "from": self._sources(arguments, call)}
                for call, arguments in self._arguments.items() if call not in self._callers]

    def sources(self, tensors: list[torch.Tensor]) -> list[int]:
        return self._sources(self._origins(tensors))

    def _origins(self, tensors: list[torch.Tensor]) -> list[_Origin]:
        """As they are now: what a later operator writes into them comes from elsewhere."""
        return [INPUT if id(t) in self._inputs or (t.grad_fn is None and not t.is_floating_point()) else t.grad_fn
                for t in tensors]

    def _sources(self, origins: list[_Origin], of: int | None = None) -> list[int]:
        """The leaf calls that reach the arguments of call `of` without passing through another one."""
        found = {INPUT} if INPUT in origins else set()
        pending = [origin for origin in origins if origin not in (INPUT, None)]
        seen: set[Any] = set()
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            call = self._made_by.get(node)
            if call is not None and call != of:
                found.add(call)
                continue
            if type(node).__name__ == "AccumulateGrad" and id(node.variable) in self._inputs:
                found.add(INPUT)
            pending.extend(successor for successor, _ in node.next_functions)
        return sorted(found)
