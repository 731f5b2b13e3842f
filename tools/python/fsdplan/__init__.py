"""Applies plans of fsdplan, records what PyTorch does with FSDP, and exports models with their operators.

What needs torch is imported when it is first used: reading a plan does not.
"""

from importlib import import_module
from typing import Any

from .errors import Refused
from .plan import Plan
from .plan_file import load

_NEED_TORCH = {
    "Description": "dataflow", "Recorder": "recorder", "default_loss": "dataflow", "describe": "dataflow",
    "export": "exporter", "fake_process_group": "compat", "record": "recorder",
}
__all__ = [
    "Description", "Plan", "Recorder", "Refused", "default_loss", "describe", "export", "fake_process_group", "load",
    "record",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f".{_NEED_TORCH[name]}", __name__), name)
