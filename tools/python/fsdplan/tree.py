"""Writes the structure of a model as a module tree (docs/formats.md), with the path of every module."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from .errors import Refused
from .names import class_name, long_dtype, torch_version
from .submodules import is_wrapped


def module_tree(model: nn.Module, name: str) -> dict[str, Any]:
    """The tree of a model that nobody has wrapped yet."""
    paths: dict[nn.Module, str] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(module, path)
        if is_wrapped(module):
            raise Refused(f"{path or 'the model'} is wrapped already; describe the model before it is wrapped")
    return _Writer(paths).document(model, name)


def source(model: nn.Module) -> str:
    parts = [f"torch {torch_version()}"]
    if (version := transformers_version()) is not None:
        parts.append(f"transformers {version}")
    return ", ".join([*parts, type(model).__name__])


def transformers_version() -> str | None:
    """None when the user's script does not use transformers."""
    return getattr(sys.modules.get("transformers"), "__version__", None)


class _Writer:
    """Numbers modules, tensors and classes in the order in which a walk from the root meets them."""

    def __init__(self, paths: dict[nn.Module, str]) -> None:
        self._paths = paths
        self._modules: dict[nn.Module, int] = {}
        self._rows: list[dict[str, Any]] = []
        self._tensors: dict[int, dict[str, Any]] = {}
        self._classes: dict[type, int] = {}

    def document(self, model: nn.Module, name: str) -> dict[str, Any]:
        root = self._module(model)
        classes = [{"name": class_name(cls), "bases": [class_name(base) for base in cls.__mro__[1:-1]]}
                   for cls in self._classes]
        return {"format": "fsdplan.module-tree", "version": 1, "model": name, "source": source(model),
                "classes": classes, "modules": self._rows, "tensors": list(self._tensors.values()), "root": root}

    def _module(self, module: nn.Module) -> int:
        if module in self._modules:
            return self._modules[module]
        number = self._modules[module] = len(self._rows)
        row: dict[str, Any] = {"id": number, "fqn": self._paths[module],
                               "class": self._classes.setdefault(type(module), len(self._classes))}
        self._rows.append(row)
        parameters = {k: self._tensor(p, p.requires_grad) for k, p in module._parameters.items() if p is not None}
        buffers = {k: self._tensor(b, False) for k, b in module._buffers.items() if b is not None}
        filled = {
            "parameters": parameters,
            "buffers": buffers,
            "non_persistent": sorted(k for k in module._non_persistent_buffers_set if k in buffers),
            "children": {k: self._module(c) for k, c in module._modules.items() if c is not None},
        }
        row.update((key, value) for key, value in filled.items() if value)
        return number

    def _tensor(self, tensor: torch.Tensor, requires_grad: bool) -> int:
        if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
            raise Refused("a lazy module has no shape yet; run one forward before")
        row = self._tensors.setdefault(id(tensor), {
            "id": len(self._tensors), "shape": list(tensor.shape), "dtype": long_dtype(tensor.dtype),
            "requires_grad": bool(requires_grad)})
        return row["id"]
