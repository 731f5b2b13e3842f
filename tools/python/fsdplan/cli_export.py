"""The command line: `python -m fsdplan export`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._pytree import tree_map

from .dataflow import default_loss
from .errors import Refused
from .exporter import export
from .fake import building
from .models import Batch, import_function, model_and_batch, model_from_config
from .names import DTYPES


def add_export(commands: Any, add_model: Any) -> None:
    p = commands.add_parser(
        "export", help="write a model and its operators",
        description="Writes the module tree of a model with the operators of one forward and backward: what each allocates, "
                    "keeps for backward and computes. Nothing is computed and no memory is taken, so the model may have "
                    "any size.",
        epilog="example: python -m fsdplan export --hf Meta-Llama-3-8B --length 8192 --batch 1 --dtype bf16 -o llama3-8b.json.gz")
    add_model(p)
    g = p.add_argument_group("output")
    g.add_argument("-o", "--output", required=True, metavar="FILE", help="gzip-compressed when it ends in .gz")
    g.add_argument("--model-name", help="of the model (that of the function or folder)")
    g = p.add_argument_group("training step")
    g.add_argument("--gradient-checkpointing", action="store_true", help="the switch of transformers")
    p.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> Path:
    if options.hf is None and options.set:
        raise Refused("--set needs --hf")
    path = Path(options.output)
    if path.is_dir():
        raise Refused(f"{path} is a folder")
    loss = import_function(options.loss) if options.loss else default_loss
    model, batch, name = _from_config(options) if options.hf else _from_function(options)
    if options.gradient_checkpointing:
        if not hasattr(model, "gradient_checkpointing_enable"):
            raise Refused("--gradient-checkpointing is for models of transformers")
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return export(model, batch, path, loss=loss, name=options.model_name or name)


def _from_config(options: argparse.Namespace) -> tuple[Any, Batch, str]:
    """Made as from_pretrained(dtype=...) would: what the model makes as float32 by name stays so."""
    before, dtype = torch.get_default_dtype(), DTYPES[options.dtype or "f32"]
    with building():
        torch.set_default_dtype(dtype)
        try:
            model, batch = model_from_config(options.hf, options.batch, options.length, dict(options.set))
        except DataDependentOutputException as error:
            raise Refused(f"{options.hf}: building the model looks at values ({error.func}); use --import with a function "
                          "that returns it") from error
        finally:
            torch.set_default_dtype(before)
        batch = tree_map(lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, batch)
    return model, batch, Path(options.hf).resolve().name


def _from_function(options: argparse.Namespace) -> tuple[Any, Batch, str]:
    """Without memory where that works, for real where building the model needs values."""
    function, name = import_function(options.function), options.function.rpartition(":")[2]
    try:
        with building():
            model, batch = _built(function, options)
    except Exception:  # noqa: BLE001 - the user's code runs once more and then says what it has to say
        try:
            model, batch = _built(function, options)
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"{options.function} raised {type(error).__name__}: {error}") from error
    return model, batch, name


def _built(function: Any, options: argparse.Namespace) -> tuple[Any, Batch]:
    model, batch = model_and_batch(function(), options.function)
    return (model.to(DTYPES[options.dtype]) if options.dtype else model), batch
