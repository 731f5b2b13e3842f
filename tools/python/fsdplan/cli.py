"""The command line: `python -m fsdplan record` and `export`."""

from __future__ import annotations

import argparse
import contextlib
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from .cli_export import add_export
from .compat import fake_process_group
from .dataflow import default_loss, describe
from .errors import Refused
from .models import import_function, model_and_batch, model_from_config
from .names import DTYPES
from .recorder import record
from .training import Loop, train
from .wrapping import Wrapping, wrap

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
_FSDP1_ONLY = ("strategy", "unit_strategy", "flat_parameters", "no_limit_all_gathers", "buffer_dtype",
               "keep_low_precision_grads", "cast_forward_inputs", "no_cast_root_inputs", "debug_detail")
_FSDP2_ONLY = ("reshard_after_forward", "unit_reshard", "root_reshard", "output_dtype", "root_output_dtype", "group",
               "root_forward_prefetch", "unshard_async", "gradient_divide_factor", "force_sum",
               "no_unshard_in_backward", "reduce_unused", "reduce_scatter_buffers", "shard_dim", "keep_unsharded",
               "last_backward", "no_all_reduce")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: written; 2: the command line or what it names is wrong, in one line on stderr."""
    warnings.filterwarnings("ignore")
    arguments = sys.argv[1:] if arguments is None else arguments
    options = None
    try:
        options = _parser().parse_args(arguments)
        torch.manual_seed(0)
        torch.set_num_threads(1)
        print(options.run(options))
        return 0
    except Exception as error:  # noqa: BLE001 - also whatever the user's code or PyTorch raises
        if options is not None and options.traceback:
            traceback.print_exc()
        problem = error if isinstance(error, Refused) else Refused(f"{type(error).__name__}: {error}")
    command = "export" if "export" in arguments[:1] else "record"
    print(f"fsdplan {command}: {problem}", file=sys.stderr)
    return 2


def _record(options: argparse.Namespace) -> Path:
    _check(options)
    folder = Path(options.output)
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is not a folder")
    loss = import_function(options.loss) if options.loss else default_loss
    with _naming(options.function or f"--hf {options.hf}"):
        if options.function:
            model, (args, kwargs) = model_and_batch(import_function(options.function)(), options.function)
            name = options.function.rpartition(":")[2]
        else:
            model, (args, kwargs) = model_from_config(options.hf, options.batch, options.length, dict(options.set))
            name = Path(options.hf).resolve().name
    if options.dtype:
        model = model.to(DTYPES[options.dtype])
    with _naming("the forward of the plain model"):
        plain = describe(model, args, kwargs, loss=loss, name=options.model_name or name)
    how, loop = _wrapping(options), _loop(options)
    with fake_process_group(options.world), _debug_level(options.debug_detail):
        root = wrap(model, how)
        trainable = [parameter for parameter in root.parameters() if parameter.requires_grad]
        make = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.SGD
        optimizer = make(trainable, lr=1e-3, foreach=False)
        recorder = record(folder, name=options.name or f"{options.engine}_{plain.name}", model=root,
                          optimizer=optimizer, plain=plain, inputs=(args, kwargs))
        with recorder:
            train(root, optimizer, args, kwargs, loss, loop)
    assert recorder.path is not None
    return recorder.path


@contextlib.contextmanager
def _naming(what: str) -> Any:
    """Says what failed when a user's code raises."""
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{what} raised {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _debug_level(detail: bool) -> Any:
    before = dist.get_debug_level()
    if detail:  # only now: PyTorch would wrap the fake process group into one that checks collectives
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        yield
    finally:
        dist.set_debug_level(before)


def _check(options: argparse.Namespace) -> None:
    foreign = _FSDP2_ONLY if options.engine == "fsdp1" else _FSDP1_ONLY
    for name in foreign:
        if getattr(options, name) not in (None, False, []):
            raise Refused(f"--{name.replace('_', '-')} does not exist with --engine {options.engine}")
    if options.mesh and options.mesh[0] * options.mesh[1] != options.world:
        raise Refused(f"--mesh {options.mesh[0]}x{options.mesh[1]} has not the {options.world} ranks of --world")
    if options.engine == "fsdp1":
        strategies = {options.strategy, *dict(options.unit_strategy).values()}
        if bool(options.mesh) != any("HYBRID" in (strategy or "") for strategy in strategies):
            raise Refused("--mesh and a HYBRID strategy belong together")
    if not options.activation_checkpointing and (options.checkpoint or options.reentrant):
        raise Refused("--checkpoint and --reentrant need --activation-checkpointing")
    if options.activation_checkpointing == "hf" and options.checkpoint:
        raise Refused("--checkpoint has no effect with --activation-checkpointing hf")
    if options.accumulate == 1 and (options.no_sync or options.no_all_reduce):
        raise Refused("--no-sync and --no-all-reduce need --accumulate N")
    if (options.keep_unsharded or options.last_backward) and not options.no_sync:
        raise Refused("--keep-unsharded and --last-backward need --no-sync")
    if options.hf is None and options.set:
        raise Refused("--set needs --hf")


def _wrapping(options: argparse.Namespace) -> Wrapping:
    fields = ("param_dtype", "reduce_dtype", "buffer_dtype", "output_dtype")
    mixed: dict[str, Any] = {name: getattr(options, name) for name in fields if getattr(options, name)}
    if options.keep_low_precision_grads:
        mixed["keep_low_precision_grads"] = True
    if options.cast_forward_inputs:
        mixed["cast_forward_inputs"] = True
    if options.no_cast_root_inputs:
        mixed["cast_root_forward_inputs"] = False
    how = Wrapping(
        options.engine, wrap=options.wrap, mesh=options.mesh, mixed_precision=mixed, cpu_offload=options.cpu_offload,
        checkpointing=options.activation_checkpointing, checkpointed=options.checkpoint, reentrant=options.reentrant)
    if options.engine == "fsdp1":
        how.strategy = options.strategy or "FULL_SHARD"
        how.unit_strategies = dict(options.unit_strategy)
        how.use_orig_params = not options.flat_parameters
        how.limit_all_gathers = not options.no_limit_all_gathers
        kinds = {"pre": "BACKWARD_PRE", "post": "BACKWARD_POST", "none": None, None: "BACKWARD_PRE"}
        if options.backward_prefetch not in kinds:
            raise Refused("--backward-prefetch is pre, post or none with --engine fsdp1")
        how.backward_prefetch = kinds[options.backward_prefetch]
        how.forward_prefetch = options.forward_prefetch is not None
        return how
    how.reshard_after_forward = options.reshard_after_forward
    how.unit_reshard, how.root_reshard = dict(options.unit_reshard), options.root_reshard
    how.root_output_dtype, how.grouped = options.root_output_dtype, options.group
    how.forward_prefetch_units = options.forward_prefetch or 0
    how.root_forward_prefetch = options.root_forward_prefetch
    if options.backward_prefetch is not None:
        how.backward_prefetch_units = _option("--backward-prefetch", positive, options.backward_prefetch)
    how.unshard_async, how.force_sum = options.unshard_async, options.force_sum
    how.gradient_divide_factor = options.gradient_divide_factor
    how.no_unshard_in_backward, how.reduce_unused = options.no_unshard_in_backward, options.reduce_unused
    how.reduce_scatter_buffers, how.shard_dim = options.reduce_scatter_buffers or 1, options.shard_dim or 0
    return how


def _loop(options: argparse.Namespace) -> Loop:
    synchronize = "no_sync" if options.no_sync else "no_all_reduce" if options.no_all_reduce else "sync"
    return Loop(options.iterations, options.accumulate, synchronize, options.keep_unsharded, options.last_backward,
                options.clip)


# Option types: argparse shows the name of the function in its message ------------------------------------------------


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(text)
    return int(text)


def mesh(text: str) -> tuple[int, int]:
    replicate, _, shard = text.partition("x")
    return positive(replicate), positive(shard)


def reshard(text: str) -> bool | int:
    return {"true": True, "false": False}[text] if text in ("true", "false") else positive(text)


def unit_strategy(text: str) -> tuple[str, str]:
    unit, _, strategy = text.rpartition("=")
    if strategy not in STRATEGIES:
        raise argparse.ArgumentTypeError(f'"{text}" is not UNIT=STRATEGY')
    return unit, strategy


def unit_reshard(text: str) -> tuple[str, bool | int]:
    unit, _, value = text.rpartition("=")
    return unit, reshard(value)


def setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    for parse in (int, float):
        with contextlib.suppress(ValueError):
            return key, parse(value)
    return key, {"true": True, "false": False, "none": None}.get(value.lower(), value)


def _option(name: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise Refused(f"{name}: {text} is not a positive number of units") from None


def _add_model(p: argparse.ArgumentParser) -> None:
    p.add_argument("--traceback", action="store_true", help="also print where a problem arose")

    g = p.add_argument_group("model (one of the first two)")
    source = g.add_mutually_exclusive_group(required=True)
    source.add_argument("--import", dest="function", metavar="MODULE:FUNCTION",
                        help="a function without arguments that returns (model, make_batch) or (model, args, kwargs); "
                             "MODULE may be a path that ends in .py")
    source.add_argument("--hf", metavar="CONFIG_DIR", help="folder with the config.json of transformers; random weights")
    g.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE",
                   help="with --hf: changes the configuration, such as num_hidden_layers=2")
    g.add_argument("--batch", type=positive, default=2, help="with --hf: sequences or images (2)")
    g.add_argument("--length", type=positive, default=16, help="with --hf: tokens a sequence (16)")
    g.add_argument("--loss", metavar="MODULE:FUNCTION",
                   help="takes the model's output, returns the scalar to run backward from; without it the output's loss, "
                        "or the mean square of its logits, last_hidden_state or tensors")
    g.add_argument("--dtype", choices=("bf16", "f16", "f64"), help="model.to(...) before anything else; export --hf: made in it")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m fsdplan", description="Companion of fsdplan for PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser, metavar="COMMAND")
    p = commands.add_parser(
        "record", help="record training steps with FSDP for `fsdplan verify`",
        description="Records what the PyTorch of this environment does in some training steps with FSDP, as rank 0 of a "
                    "job that does not exist, on the CPU. `fsdplan verify FOLDER` compares the simulator with it.",
        epilog="example: python -m fsdplan record --import train.py:small_model --engine fsdp2 --wrap 'layers.*' "
               "--param-dtype bf16 --reduce-dtype f32 -o recordings")
    p.set_defaults(run=_record)
    _add_model(p)

    g = p.add_argument_group("output")
    g.add_argument("-o", "--output", required=True, metavar="FOLDER", help="gets NAME.json and models/MODEL.json")
    g.add_argument("--name", help="of the recording (ENGINE_MODEL)")
    g.add_argument("--model-name", help="of the model (that of the function or folder)")

    g = p.add_argument_group("FSDP")
    g.add_argument("--engine", choices=("fsdp1", "fsdp2"), default="fsdp2",
                   help="fsdp1: FullyShardedDataParallel, fsdp2: fully_shard (default)")
    g.add_argument("--world", type=positive, default=8, help="ranks (8)")
    g.add_argument("--mesh", type=mesh, metavar="RxS", help="R replicas of S shards: hybrid sharding")
    g.add_argument("--wrap", nargs="+", action="extend", default=[], metavar="PATTERN",
                   help="paths of modules that become units, * for any part of one segment; the root always is one")
    dtypes = tuple(name for name in DTYPES if name in ("f32", "bf16", "f16"))
    for name in ("param", "reduce", "buffer", "output"):
        g.add_argument(f"--{name}-dtype", choices=dtypes, help={"buffer": "fsdp1", "output": "fsdp2"}.get(name))
    g.add_argument("--cpu-offload", action="store_true")
    g.add_argument("--forward-prefetch", nargs="?", type=positive, const=1, metavar="N",
                   help="fsdp1: on; fsdp2: each unit names the next N (1)")
    g.add_argument("--backward-prefetch", metavar="HOW", help="fsdp1: pre (default), post or none; fsdp2: N units")

    g = p.add_argument_group("only with --engine fsdp1")
    g.add_argument("--strategy", choices=STRATEGIES, help="FULL_SHARD")
    g.add_argument("--unit-strategy", type=unit_strategy, action="append", default=[], metavar="UNIT=STRATEGY")
    g.add_argument("--flat-parameters", action="store_true", help="use_orig_params=False")
    g.add_argument("--no-limit-all-gathers", action="store_true")
    g.add_argument("--keep-low-precision-grads", action="store_true")
    g.add_argument("--cast-forward-inputs", action="store_true")
    g.add_argument("--no-cast-root-inputs", action="store_true")
    g.add_argument("--debug-detail", action="store_true", help="TORCH_DISTRIBUTED_DEBUG=DETAIL")

    g = p.add_argument_group("only with --engine fsdp2")
    g.add_argument("--reshard-after-forward", type=reshard, metavar="true|false|N")
    g.add_argument("--unit-reshard", type=unit_reshard, action="append", default=[], metavar="UNIT=true|false|N")
    g.add_argument("--root-reshard", type=reshard, metavar="true|false|N")
    g.add_argument("--root-output-dtype", choices=dtypes)
    g.add_argument("--group", type=lambda text: text.split(","), action="append", default=[], metavar="UNIT,UNIT",
                   help="one fully_shard call for several wrapped modules")
    g.add_argument("--root-forward-prefetch", action="store_true", help="the root names the first unit")
    g.add_argument("--unshard-async", action="store_true")
    g.add_argument("--gradient-divide-factor", type=float, metavar="F", help="of the root")
    g.add_argument("--force-sum", action="store_true", help="of the root")
    g.add_argument("--no-unshard-in-backward", action="append", default=[], metavar="UNIT")
    g.add_argument("--reduce-unused", action="store_true", help="set_reduce_scatter_unused_params(True)")
    g.add_argument("--reduce-scatter-buffers", type=positive, metavar="N")
    g.add_argument("--shard-dim", type=positive, metavar="D", help="shard along D where a parameter has it")

    g = p.add_argument_group("training step")
    g.add_argument("--activation-checkpointing", choices=("inside", "outside", "hf"),
                   help="inside: unit(checkpoint(module)); outside: checkpoint(unit(module)); hf: the model's own")
    g.add_argument("--checkpoint", nargs="+", action="extend", default=[], metavar="PATTERN",
                   help="what to checkpoint (what --wrap wraps)")
    g.add_argument("--reentrant", action="store_true")
    g.add_argument("--accumulate", type=positive, default=1, metavar="N", help="micro-batches a step")
    how = g.add_mutually_exclusive_group()
    how.add_argument("--no-sync", action="store_true", help="reduce gradients in the last micro-batch only")
    how.add_argument("--no-all-reduce", action="store_true", help="fsdp2: reduce-scatter in all, all-reduce in the last")
    g.add_argument("--keep-unsharded", action="store_true", help="fsdp2: set_reshard_after_backward(last)")
    g.add_argument("--last-backward", action="store_true", help="fsdp2: set_is_last_backward(last)")
    g.add_argument("--clip", action="store_true", help="clip the norm of the gradients to 1")
    g.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    g.add_argument("--iterations", type=positive, default=3, metavar="N", help="steps (3)")

    add_export(commands, _add_model)
    return parser
