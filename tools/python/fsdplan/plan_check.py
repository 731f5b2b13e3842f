"""Whether a model is the one that was planned."""

from __future__ import annotations

from itertools import zip_longest

from torch import nn

from .errors import Refused
from .names import long_dtype
from .plan import Plan, PlannedParameter
from .submodules import is_wrapped


def check_model(plan: Plan, model: nn.Module) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    for path, module in modules.items():
        if is_wrapped(module):
            raise Refused(f"{path or 'the model'} is wrapped already; give the plain model")
    found = [PlannedParameter(name, tuple(p.shape), long_dtype(p.dtype), p.requires_grad)
             for name, p in model.named_parameters()]
    for number, (planned, own) in enumerate(zip_longest(plan.parameters, found)):
        if planned != own:
            raise Refused(f"this is not the model of {plan.source}: {_difference(number, planned, own)}")
    for unit in plan.units:
        for path in unit.modules:
            _check_module(path, modules, "a unit")
    for path in plan.checkpointing.modules:
        _check_module(path, modules, "checkpointed")


def _check_module(path: str, modules: dict[str, nn.Module], role: str) -> None:
    if path not in modules:
        raise Refused(f"the model has no module {path}, which is {role} of the plan")


def _difference(number: int, planned: PlannedParameter | None, own: PlannedParameter | None) -> str:
    if own is None or planned is None:
        odd = own or planned
        assert odd is not None
        return f"parameter {number} is {odd.name}, which the {'plan' if own else 'model'} does not have"
    if own.name != planned.name:
        return f"parameter {number} is {own.name}, planned {planned.name}"
    for what in ("shape", "dtype", "requires_grad"):
        if (its := getattr(own, what)) != (expected := getattr(planned, what)):
            return f"the {what} of {own.name} is {_word(its)}, planned {_word(expected)}"
    raise AssertionError("equal parameters have no difference")


def _word(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
