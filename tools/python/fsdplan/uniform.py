"""Settings that PyTorch has for every unit and a recording has once."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import torch

from .errors import Refused
from .names import short_dtype


def uniform(what: str, values: dict[str, Any]) -> Any:
    """The one value; `values` maps the path of a unit to its value."""
    counts = Counter(map(repr, values.values()))
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        path, odd = next((path, value) for path, value in values.items() if repr(value) != usual)
        raise Refused(f"{what} of {path or 'the root'} is {odd} and {usual} elsewhere; a recording has one for all units")
    return next(iter(values.values()))


def mixed_precision(policy: Any, defaults: Any) -> dict[str, Any]:
    """The fields of a mixed-precision dataclass that differ from those of `defaults`."""
    found = {}
    for field in dataclasses.fields(policy):
        value = getattr(policy, field.name)
        if not field.name.startswith("_") and value != getattr(defaults, field.name):
            found[field.name] = short_dtype(value) if isinstance(value, torch.dtype) else value
    return found
