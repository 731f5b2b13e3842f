"""Taps on torch.distributed: every collective that a runtime issues.

The fake process group leaves outputs as they are. The taps fill them as if all ranks held what rank 0 holds, which keeps
the numbers of the training finite. With gloo there are other ranks, and their numbers arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from .compat import DTensor, gather_name, reduce_scatter_name
from .events import Patches, Tape
from .names import short_dtype

# Collectives that no FSDP runtime issues in a step.
_OTHERS = ("all_gather_object", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "batch_isend_irecv",
           "broadcast", "gather", "irecv", "isend", "recv", "reduce", "reduce_scatter", "scatter", "send")


def install(patches: Patches, tape: Tape, engine: str) -> None:
    memory = tape.memory
    alone = dist.get_backend() == "fake"

    def ours(name: str, *, detail: bool = False) -> None:
        if not (tape.inside_runtime() or detail):
            tape.refuse(f"{name} is called outside of FSDP (in phase {tape.stage}); a recording has only FSDP's own "
                        "collectives")

    def gather_single(original: Callable[..., Any]) -> Callable[..., Any]:
        def tap(output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None,
                async_op: bool = False) -> Any:
            ours("all_gather", detail=_detail() and input_tensor.dtype is torch.int32)
            memory.track(output_tensor, "ag", retag=engine == "fsdp2")
            tape.collective("all_gather", input_tensor, output_tensor.numel(), group)
            work = original(output_tensor, input_tensor, group=group, async_op=async_op)
            ranks = output_tensor.numel() // input_tensor.numel()
            if alone and ranks > 1:
                output_tensor.view(ranks, -1)[1:].copy_(input_tensor.view(1, -1))
            return work
        return tap

    def gather_list(original: Callable[..., Any]) -> Callable[..., Any]:
        def tap(tensor_list: list[torch.Tensor], tensor: torch.Tensor, group: Any = None,
                async_op: bool = False) -> Any:
            ours("all_gather", detail=_detail() and tensor.dtype is torch.int32)
            tape.collective("all_gather", tensor, sum(t.numel() for t in tensor_list), group)
            work = original(tensor_list, tensor, group=group, async_op=async_op)
            for output in tensor_list if alone else ():
                output.copy_(tensor)
            return work
        return tap

    def reduce_scatter(original: Callable[..., Any]) -> Callable[..., Any]:
        def tap(output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,
                async_op: bool = False) -> Any:
            ours("reduce_scatter")
            memory.track(input, "rs_in", retag=True)
            memory.track(output, "rs_out", retag=True)
            tape.collective("reduce_scatter", input, output.numel(), group, _op_name(op))
            work = original(output, input, op=op, group=group, async_op=async_op)
            if alone:
                output.copy_(input[:output.numel()])
            return work
        return tap

    def all_reduce(original: Callable[..., Any]) -> Callable[..., Any]:
        def tap(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
            ours("all_reduce")
            tape.collective("all_reduce", tensor, tensor.numel(), group, _op_name(op))
            return original(tensor, op=op, group=group, async_op=async_op)
        return tap

    def other(name: str) -> Callable[..., Any]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def tap(*args: Any, **kwargs: Any) -> Any:
                tape.refuse(f"torch.distributed.{name} is called in the recorded steps; a recording has only FSDP's own "
                            "collectives")
                return original(*args, **kwargs)
            return tap
        return make

    patches.wrap(dist, gather_name(), gather_single)
    patches.wrap(dist, "all_gather", gather_list)
    patches.wrap(dist, reduce_scatter_name(), reduce_scatter)
    patches.wrap(dist, "all_reduce", all_reduce)
    for name in _OTHERS:
        if hasattr(dist, name):
            patches.wrap(dist, name, other(name))


class FunctionalCollectives(TorchDispatchMode):
    """Sees the collectives that DTensor issues as operators: those of torch.nn.utils.clip_grad_norm_ under FSDP2."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        name = func._schema.name
        if name.startswith("_c10d_functional::") and len(args) > 1 and isinstance(args[-1], str):
            self._record(name.removeprefix("_c10d_functional::").rstrip("_"), args)
        return func(*args, **(kwargs or {}))

    def _record(self, kind: str, args: Any) -> None:
        tape, tensor, op = self._tape, args[0], args[1] if isinstance(args[1], str) else None
        group = dist.distributed_c10d._resolve_process_group(args[-1])
        if (kind, op, tape.stage) != ("all_reduce", "sum", "clip"):
            tape.refuse(f"an operator issues {kind}{f' ({op})' if op else ''} in phase {tape.stage}; of such "
                        "collectives a recording has only the sum of clip_grad_norm_")
        tape.clipped = True
        tape.add(kind, None, dt=short_dtype(tensor.dtype), **{"in": tensor.numel()}, out=tensor.numel(),
                 g=group.size(), grp=tape.groups.get(id(group), "world"), op=op)


def _detail() -> bool:
    """At this level FSDP1 lets the ranks compare which unit is next, before it starts on it."""
    return dist.get_debug_level() == dist.DebugLevel.DETAIL


def _op_name(op: Any) -> str:
    name = str(op).split(".")[-1].lower()
    return name if name.isalpha() else "premulsum"  # the scaled sum has no readable name
