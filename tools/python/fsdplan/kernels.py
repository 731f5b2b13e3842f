"""What an operator returns without memory, where torch's rule for it and its kernels differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import _meta_registrations as rules


def shape_rule(func: Any) -> Callable[..., Any]:
    """To be called under a FakeTensorMode in place of the operator."""
    return _OWN_RULES.get(str(func), lambda *args, **kwargs: func(*args, **kwargs))


def _layer_norm_backward(gradient: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The kernel's results are contiguous, whatever the gradient is."""
    return torch.ops.aten.native_layer_norm_backward.default(gradient.contiguous(), *args, **kwargs)


def _grouped_mm(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None, bias: torch.Tensor | None = None,
                out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """The rule knows bfloat16 alone."""
    return rules._create_grouped_mm_output_tensor(a, b, offs, out_dtype)


_OWN_RULES: dict[str, Callable[..., Any]] = {"aten.native_layer_norm_backward.default": _layer_norm_backward}
if hasattr(rules, "_create_grouped_mm_output_tensor"):
    _OWN_RULES["aten._grouped_mm.default"] = _grouped_mm
