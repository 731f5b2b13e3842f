"""Names of modules, classes and element types, as the recordings write them."""

from __future__ import annotations

import torch
from torch import nn

from .errors import Refused

#: Path segments that wrappers add between a module and its parent.
WRAPPER_SEGMENTS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")

DTYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64,
    "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "b8": torch.bool,
}
_SHORT = {dtype: name for name, dtype in DTYPES.items()}


def short_dtype(dtype: torch.dtype) -> str:
    """`f32` for `torch.float32`, and so on."""
    if dtype not in _SHORT:
        raise Refused(f"a recording has no name for the element type {dtype}")
    return _SHORT[dtype]


def long_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def clean(path: str) -> str:
    """The path of a module or parameter in the model without wrappers."""
    return ".".join(part for part in path.split(".") if part and part not in WRAPPER_SEGMENTS)


def innermost_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Clean path -> the user's own module there, inside all wrappers."""
    return {clean(path): module for path, module in model.named_modules()}  # wrappers come before what they hold


def class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def post_order(model: nn.Module) -> list[str]:
    """Clean paths of all modules, children before their parents, each module once; the root is left out."""
    paths: list[str] = []
    seen: set[int] = set()

    def visit(module: nn.Module, path: str) -> None:
        if id(module) in seen:
            return
        seen.add(id(module))
        for name, child in module._modules.items():
            if child is not None:
                visit(child, f"{path}.{name}" if path else name)
        if (name := clean(path)) and name not in paths:
            paths.append(name)

    visit(model, "")
    return paths


def torch_version() -> str:
    """Without the part that names the build, such as `+cpu`."""
    return torch.__version__.split("+")[0]
