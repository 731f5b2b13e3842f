"""What differs between the PyTorch versions that can be recorded, kept in one place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from .errors import Refused
from .names import torch_version

try:  # public since 2.6
    from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as param_group
    from torch.distributed.fsdp._fully_shard import _fsdp_state as state

    FSDP2_ON_CPU = True
except ImportError:
    from torch.distributed._composable.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
    from torch.distributed._composable.fsdp import _fsdp_param_group as param_group
    from torch.distributed._composable.fsdp import _fsdp_state as state

    FSDP2_ON_CPU = False  # it asked for CUDA streams in any case

try:
    from torch.distributed.tensor import DTensor, Shard
except ImportError:
    from torch.distributed._tensor import DTensor, Shard

__all__ = ["CPUOffloadPolicy", "DTensor", "FSDPModule", "MixedPrecisionPolicy", "Shard", "check_fsdp2", "fake_process_group",
           "fsdp2_groups", "fsdp2_modules", "fsdp2_states", "fully_shard", "gather_name", "param_group",
           "reduce_scatter_name", "state"]


def _first(names: tuple[str, ...]) -> str:
    for name in names:
        if hasattr(dist, name):
            return name
    raise Refused(f"torch {torch_version()} has none of torch.distributed.{', '.join(names)}")


def gather_name() -> str:
    """The function of torch.distributed that both runtimes gather parameters with."""
    return _first(("all_gather_single", "all_gather_into_tensor"))


def reduce_scatter_name() -> str:
    return _first(("reduce_scatter_single", "reduce_scatter_tensor"))


def check_fsdp2() -> None:
    if not FSDP2_ON_CPU:
        raise Refused(f"fully_shard of torch {torch_version()} runs on GPUs only; recording it needs torch 2.6 or newer")


def fsdp2_states(root: nn.Module) -> list[tuple[str, Any]]:
    """(first path of a module, its state) for every distinct state of fully_shard under `root`."""
    found: list[tuple[str, Any]] = []
    for path, module in root.named_modules():
        if isinstance(module, FSDPModule):
            its = module._get_fsdp_state()
            if all(its is not other for _, other in found):
                found.append((path, its))
    return found


def fsdp2_groups(its: Any) -> list[Any]:
    """The parameter groups of a state: a list since 2.13, one or none before."""
    groups = getattr(its, "_fsdp_param_groups", None)
    if groups is None:
        groups = [its._fsdp_param_group] if its._fsdp_param_group is not None else []
    return list(groups)


def fsdp2_modules(its: Any) -> tuple[nn.Module, ...]:
    modules = getattr(its, "_modules", None)
    return tuple(modules) if modules else (its._module,)


@contextlib.contextmanager
def fake_process_group(world: int) -> Iterator[None]:
    """A process group in which this process plays rank 0 of `world`; collectives return at once.

    Without a CUDA driver memory cannot be pinned, so that pinning does nothing inside; sizes do not change.
    """
    if dist.is_initialized():
        raise Refused("there is a process group already; fake_process_group makes its own")
    pin_memory = torch.Tensor.pin_memory
    if not torch.cuda.is_available():
        torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign,assignment]
    for name in ("record_event", "wait_event", "synchronize"):
        if not hasattr(torch.cpu.Stream, name):  # versions lack some; the CPU has nothing to wait for
            setattr(torch.cpu.Stream, name, lambda self, *_: None)
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        torch.Tensor.pin_memory = pin_memory  # type: ignore[method-assign]
