"""Finds and replaces modules by their paths in the model without wrappers."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from .errors import Refused
from .names import WRAPPER_SEGMENTS, clean


def outermost_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Clean path -> the module there with whatever is wrapped around it."""
    found: dict[str, nn.Module] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        found.setdefault(clean(path), module)  # wrappers come before what they hold
    return found


def locate(model: nn.Module, path: str) -> tuple[nn.Module, nn.Module]:
    """(parent, outermost module) at a path of the plain model, past all wrappers."""
    module = parent = model
    for name in path.split("."):
        while inner := next((part for part in WRAPPER_SEGMENTS if part in module._modules), None):
            module = module.get_submodule(inner)
        if module._modules.get(name) is None:
            raise Refused(f'the model has no module "{path}"')
        parent, module = module, module.get_submodule(name)
    return parent, module


def replace(model: nn.Module, path: str, make: Callable[[nn.Module], nn.Module]) -> None:
    parent, module = locate(model, path)
    new = make(module)
    for name, child in list(parent._modules.items()):  # a module may hang there under several names
        if child is module:
            parent._modules[name] = new


def is_sharded(module: nn.Module) -> bool:
    """By FullyShardedDataParallel or fully_shard."""
    return hasattr(module, "_fsdp_wrapped_module") or hasattr(module, "_get_fsdp_state")


def is_wrapped(module: nn.Module) -> bool:
    """By FSDP or a checkpoint."""
    return is_sharded(module) or hasattr(module, "_checkpoint_wrapped_module")


def is_checkpointing_layer(module: nn.Module) -> bool:
    """Whether transformers can checkpoint this very module's forward."""
    return any(cls.__name__ == "GradientCheckpointingLayer" for cls in type(module).__mro__)
