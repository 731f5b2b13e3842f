"""Checkpoints the activations of a plan's modules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from .errors import Refused
from .plan import Plan
from .submodules import is_checkpointing_layer, is_sharded, outermost_modules, replace

_ATTENTION = ("aten::_scaled_dot_product", "aten::_flash_attention_forward", "aten::_efficient_attention_forward")


def checkpoint_modules(plan: Plan, model: nn.Module) -> None:
    how = plan.checkpointing
    if not how.modules:
        return
    sharded = any(is_sharded(module) for module in model.modules())
    if sharded != (how.placement == "outside"):
        raise Refused(f'checkpoints {how.placement} of the units are made {"before" if sharded else "after"} FSDP')
    options = {"context_fn": _selective_contexts} if how.selective else {}
    if how.placement == "forward":
        _by_model(how.modules, model, options)
        return
    for path in how.modules:
        replace(model, path, functools.partial(checkpoint_wrapper, **options))


def _by_model(paths: tuple[str, ...], model: Any, options: dict[str, Any]) -> None:
    """The model's own switch, which transformers has, thrown for the planned layers alone."""
    if not hasattr(model, "gradient_checkpointing_enable"):
        raise Refused(f"{type(model).__name__} has no gradient_checkpointing_enable, and the plan leaves checkpointing to "
                      "the model")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False, **options})
    modules = outermost_modules(model)
    planned = {id(modules[path]) for path in paths}
    layers = [module for module in model.modules() if is_checkpointing_layer(module)]
    if planned - {id(layer) for layer in layers}:
        odd = next(path for path in paths if not is_checkpointing_layer(modules[path]))
        raise Refused(f"{odd} cannot checkpoint itself in this version of transformers, as the plan has it")
    for layer in layers:
        layer.gradient_checkpointing = id(layer) in planned


def _selective_contexts() -> Any:
    """For one call of a module: keeps attention and the first, third, … matrix product of it.

    Forward and recomputation count alike, each for itself.
    """
    return create_selective_checkpoint_contexts(_every_other_product())


def _every_other_product() -> Callable[..., CheckpointPolicy]:
    products = {False: 0, True: 0}

    def policy(context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        kept = op._schema.name.startswith(_ATTENTION)
        if op is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            kept = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return policy
