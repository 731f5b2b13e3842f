"""Exports a model with the operators of one forward and backward: a module tree, version 2 (docs/formats.md)."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode,
                                           UnsupportedOperatorException)
from torch.utils._pytree import tree_leaves

from .dataflow import default_loss, describe, loss_in_words
from .errors import Refused
from .fake import device_of, fake_mode, without_memory
from .files import write_tree
from .models import as_batch, refuse_compiled
from .names import long_dtype
from .operators import Node, Operators, watch_nodes
from .rows import operator_rows


def export(model: nn.Module, sample: Any, path: str | os.PathLike[str], *,
           loss: Callable[[Any], torch.Tensor] = default_loss, name: str | None = None) -> Path:
    """Writes the tree of the model and the operators of one training step of it to `path`, gzip-compressed for `*.gz`.

    `sample` is a tensor, a tuple of positional arguments, a dict of keyword arguments, or `(args, kwargs)`; nothing is
    computed, so that model and sample may be on the meta device or made in a FakeTensorMode. Of the sample's values only
    those of integers and truth values matter, where the forward looks at them. The model is as before afterwards.
    """
    path = Path(path)
    write_tree(path, operator_tree(model, sample, loss=loss, name=name))
    return path


def operator_tree(model: nn.Module, sample: Any, *, loss: Callable[[Any], torch.Tensor] = default_loss,
                  name: str | None = None) -> dict[str, Any]:
    """What `export` writes."""
    refuse_compiled(model, "export")
    mode = fake_mode(model)
    with without_memory(mode, model, as_batch(sample, "the sample")) as (args, kwargs), _explaining(model) as calls:
        device = device_of(model, (args, kwargs))
        tree = describe(model, args, kwargs, loss=loss, name=name).tree
        words: list[str] = []
        seen, nodes = _step(model, args, kwargs, loss, calls, words)
        if calls.order != tree["forward_order"]:
            raise Refused("a second forward calls other modules than the first; an export needs a forward that does not draw")
        rows = operator_rows(seen, nodes, _tensor_ids(model, tree))
        inputs = [[list(t.shape), long_dtype(t.dtype)] for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        for parameter in model.parameters():
            parameter.grad = None
    operators = {"device": device, "inputs": inputs, "loss": words[0], **rows}
    return tree | {"version": 2, "operators": operators}


class _Calls:
    """Which module calls run."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.open: list[int] = []
        self.frozen = False  # recomputation inside of the backward calls modules again

    @contextlib.contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        handles = []
        for path, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(self._enter(path)))
            handles.append(module.register_forward_hook(self._leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if not self.frozen:
                self.open.append(len(self.order))
                self.order.append(path)
        return hook

    def _leave(self, *_: Any) -> None:
        if not self.frozen:
            self.open.pop()


def _step(model: nn.Module, args: Any, kwargs: Any, loss: Callable[[Any], torch.Tensor], calls: _Calls,
          words: list[str]) -> tuple[Operators, dict[int, Node]]:
    """One forward and backward; what a training loop would drop in between is dropped."""
    seen = Operators(calls.open)
    for tensor in [*model.parameters(), *model.buffers(), *tree_leaves((args, kwargs))]:
        if isinstance(tensor, torch.Tensor):
            seen.outside(tensor)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_no_collection())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(calls.watch(model))
        for parameter in model.parameters():
            if parameter.requires_grad:
                handle = parameter.register_post_accumulate_grad_hook(seen.gradient)
                stack.callback(handle.remove)
        stack.enter_context(seen)
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(seen.pack, seen.unpack):
            output = model(*args, **kwargs)
            words.append(loss_in_words(loss, output))
            value = loss(output)
            del output
        _check_loss(value)
        calls.frozen = True
        nodes = watch_nodes(value, seen.run_node)
        seen.begin_backward(value)
        value.backward()
        seen.end_backward()
        del value
        seen.close()
    return seen, nodes


def _check_loss(value: Any) -> None:
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise Refused("the loss is not a tensor with one element")
    if not value.requires_grad:
        raise Refused("the loss does not require a gradient")


def _tensor_ids(model: nn.Module, tree: dict[str, Any]) -> dict[nn.Parameter, int]:
    return {model.get_submodule(module["fqn"])._parameters[local]: tensor
            for module in tree["modules"] for local, tensor in module.get("parameters", {}).items()}


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Memory in reference cycles goes at the end, not when the collector happens to run."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _explaining(model: nn.Module) -> Iterator[_Calls]:
    """Says in which module a forward does what it cannot without memory."""
    calls = _Calls()
    log = logging.getLogger("torch._subclasses.fake_tensor")  # tells of operators that fail, over many lines
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield calls
    except Refused:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Refused(f"{_place(error, model)} looks at values ({error.func}), and an export has shapes only") from error
    except UnsupportedOperatorException as error:
        raise Refused(f"{_place(error, model)} runs {error.func}, which does not say what shape it returns") from error
    except Exception as error:
        raise Refused(f"{_place(error, model)} raised {type(error).__name__} without memory: {error}") from error
    finally:
        log.setLevel(level)


def _place(error: BaseException, model: nn.Module) -> str:
    """The innermost module in whose forward the error arose."""
    paths = {id(module): path for path, module in model.named_modules()}
    place, step = "the step", error.__traceback__
    while step is not None:
        path = paths.get(id(step.tb_frame.f_locals.get("self")))
        if path is not None:
            place = path or "the model"
        step = step.tb_next
    return place
