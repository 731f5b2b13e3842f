"""Gets the model to record: from a function of the user, or from a configuration of transformers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .errors import Refused
from .names import innermost_modules

Batch = tuple[tuple[Any, ...], dict[str, Any]]


def import_function(what: str) -> Callable[..., Any]:
    """The function behind `package.module:function` or `path/script.py:function`."""
    where, colon, name = what.rpartition(":")
    if not colon or not where or not name:
        raise Refused(f'"{what}" is not MODULE:FUNCTION')
    if where.endswith(".py"):
        module = _script(Path(where))
    else:
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise Refused(f"cannot import {where}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise Refused(f"{where} has no function {name}")
    return function


def model_and_batch(made: Any, what: str) -> tuple[nn.Module, Batch]:
    """Takes `(model, make_batch)` or `(model, args, kwargs)` apart."""
    shape = f"{what} must return (model, make_batch) or (model, args, kwargs)"
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        raise Refused(f"{shape}, not {_kind(made)}")
    if len(made) == 3:
        if not isinstance(made[1], (tuple, list)) or not isinstance(made[2], dict):
            raise Refused(f"{shape}; args is a {type(made[1]).__name__} and kwargs a {type(made[2]).__name__}")
        return made[0], (tuple(made[1]), made[2])
    if not callable(made[1]):
        raise Refused(f"{shape}; make_batch is a {type(made[1]).__name__}")
    return made[0], as_batch(made[1](), f"what make_batch of {what} returns")


def model_from_config(folder: str, batch: int, length: int, changes: dict[str, Any]) -> tuple[nn.Module, Batch]:
    """The model of a config.json with random weights, and random token ids or pixels."""
    try:
        import transformers
    except ImportError as error:
        raise Refused("--hf needs the package transformers") from error
    if not (Path(folder) / "config.json").is_file():
        raise Refused(f"{folder} has no config.json")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise Refused(f"{folder}/config.json: {str(error).split('. ')[0]}") from error
    for key, value in {"use_cache": False, **changes}.items():
        if key != "use_cache" and not hasattr(config, key):
            raise Refused(f"{folder}/config.json has no {key}")
        setattr(config, key, value)
    name = next(iter(config.architectures or []), None)
    cls = getattr(transformers, name, None) if name else None
    if cls is None:
        raise Refused(f"{folder}/config.json: transformers has no architecture {name}")
    model = cls(config)
    generator = torch.Generator().manual_seed(0)
    if model.main_input_name == "pixel_values":
        size, channels = config.image_size, getattr(config, "num_channels", 3)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return model, ((), {"pixel_values": torch.randn(batch, channels, height, width, generator=generator)})
    if model.main_input_name != "input_ids":
        raise Refused(f"{name} takes {model.main_input_name}; use --import with a function that makes a batch")
    kwargs = {"input_ids": torch.randint(config.vocab_size, (batch, length), generator=generator)}
    if config.is_encoder_decoder:
        kwargs["decoder_input_ids"] = kwargs["input_ids"].clone()
    return model, ((), kwargs)


def refuse_compiled(model: nn.Module, verb: str) -> None:
    for path, module in innermost_modules(model).items():
        if getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule":
            raise Refused(f"{path or 'the model'} is compiled; {verb} without torch.compile")


def _script(path: Path) -> Any:
    if not path.is_file():
        raise Refused(f"there is no file {path}")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_batch(made: Any, what: str) -> Batch:
    """(args, kwargs) from any of the forms in which a batch may be given."""
    if isinstance(made, torch.Tensor):
        return (made,), {}
    if isinstance(made, dict):
        return (), made
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], (tuple, list)) and isinstance(made[1], dict):
        return tuple(made[0]), made[1]
    if isinstance(made, (tuple, list)):
        return tuple(made), {}
    if hasattr(made, "keys"):  # transformers' BatchEncoding and its like
        return (), dict(made)
    raise Refused(f"{what} must be a tensor, a tuple, a dict or (args, kwargs), not {_kind(made)}")


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(type(part).__name__ for part in value) + ")"
    return type(value).__name__
