"""The training loop of `python -m fsdplan record`: the same batch in every micro-batch of every step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel


@dataclass
class Loop:
    iterations: int = 3
    micro_batches: int = 1
    synchronize: str = "sync"  # all micro-batches; no_sync and no_all_reduce: the last one alone
    keep_unsharded: bool = False
    last_backward: bool = False  # tell fully_shard which backward is the last
    clip: bool = False


def train(root: nn.Module, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any],
          loss: Callable[[Any], torch.Tensor], loop: Loop) -> None:
    for _ in range(loop.iterations):
        for i in range(loop.micro_batches):
            with _synchronization(root, loop, last=i == loop.micro_batches - 1):
                output = root(*args, **kwargs)
                value = loss(output)
                del output  # logits are not needed in backward
                value.backward()
                del value
        if loop.clip:
            if isinstance(root, FullyShardedDataParallel):
                root.clip_grad_norm_(1.0)
            else:
                torch.nn.utils.clip_grad_norm_(root.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _synchronization(root: Any, loop: Loop, last: bool) -> contextlib.AbstractContextManager[None]:
    if loop.synchronize == "no_all_reduce":
        root.set_requires_all_reduce(last)
    elif loop.synchronize == "no_sync":
        if isinstance(root, FullyShardedDataParallel):
            return contextlib.nullcontext() if last else root.no_sync()
        root.set_requires_gradient_sync(last)
        if loop.keep_unsharded:
            root.set_reshard_after_backward(last)
        if loop.last_backward:
            root.set_is_last_backward(last)
    return contextlib.nullcontext()
