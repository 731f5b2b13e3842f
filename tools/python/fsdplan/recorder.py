"""Puts the taps round a training loop and writes what they saw."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils._pytree import tree_leaves

from . import collectives, fsdp1, fsdp2
from .accumulation import accumulation, read_micro_batch
from .case import read_case
from .checks import check_calls, check_description, check_group
from .dataflow import Description
from .errors import Refused
from .events import Patches, Tape, in_backward
from .files import write_recording
from .memory import LiveBytes
from .names import innermost_modules, long_dtype, short_dtype, torch_version
from .tree import transformers_version
from .units import Unit, engine_of, find_units, name_units, reshard_after_forward

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


class Recorder:
    """A context round some steps of training with FSDP; leaving it writes the recording.

    Inside, a step is whatever leads to `optimizer.step()` and the `zero_grad()` after it: forwards of `model`, each with
    its `loss.backward()`, and if wanted `clip_grad_norm_`. `zero_grad()` may also stand at the head of the loop. What a
    recording cannot say raises `Refused` at the end, and nothing is written then.
    """

    def __init__(self, folder: str | Path, name: str, model: nn.Module, optimizer: torch.optim.Optimizer,
                 plain: Description, inputs: Any = ()) -> None:
        for what in (name, plain.name):
            if not _NAME.fullmatch(what):
                raise Refused(f'"{what}" cannot be the name of a file; use letters, digits, and _ . + -')
        self._folder, self._name, self._plain, self._inputs = Path(folder), name, plain, inputs
        self._root, self._optimizer = model, optimizer
        self._memory = LiveBytes()
        self._tape = Tape(self._memory)
        self._functional = collectives.FunctionalCollectives(self._tape)
        self._patches = Patches()
        self._handles: list[Any] = []
        self._iterations: list[dict[str, Any]] = []
        self._micro_batches: list[dict[str, bool]] = []
        self._accumulation: list[dict[str, Any] | None] = []
        self._forwards = 0
        self._stepped = False
        self._marked = False  # the mark of the coming micro-batch is set
        self._start = 0
        self.path: Path | None = None  # of the recording, once it is written

    def __enter__(self) -> Recorder:
        check_group()
        self._engine = engine_of(self._root)
        self._units = find_units(self._root)
        self._case = read_case(self._root, self._units, self._optimizer)
        check_description(self._plain, self._root, self._units, self._engine)
        name_units(self._units, self._tape)
        try:
            self._listen()
        except BaseException:
            self._stop_listening()
            raise
        self._count_what_exists()
        self._memory.__enter__()
        self._functional.__enter__()
        self._begin_iteration()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None and self._stepped:
                self._optimizer.zero_grad()  # as the head of the next step would
        finally:
            self._functional.__exit__(kind, error, trace)
            self._memory.__exit__(kind, error, trace)
            self._stop_listening()
        if kind is None:
            self._write()

    # What happens in a step -------------------------------------------------------------------------------------------

    def _before_forward(self, _module: nn.Module, args: Any, kwargs: Any) -> None:
        if in_backward():
            return
        if not torch.is_grad_enabled():
            self._tape.refuse("the model runs without gradients between the recorded steps")
        self._begin_micro_batch()
        self._marked = False
        self._forwards += 1
        if self._forwards != len(self._micro_batches) + 1:
            self._tape.refuse("the model runs twice before loss.backward(); a recording has one forward for a backward")
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor):
                self._memory.track(value, "inp", retag=True)

    def _begin_micro_batch(self) -> None:
        if self._marked:
            return
        if self._stepped:
            self._tape.refuse("optimizer.step() is not followed by zero_grad()")
        self._marked = True
        self._tape.stage, self._memory.default = "fwd", "act"
        self._tape.add("microbatch", None, i=self._forwards)

    def _no_sync(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tap(module: nn.Module) -> Any:
            if module is self._root:
                self._begin_micro_batch()  # entering FSDP1's no_sync for the first time sets the runtime up
            return original(module)
        return tap

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tap(*args: Any, **kwargs: Any) -> Any:
            if in_backward():  # a reentrant checkpoint runs its part of the backward
                return original(*args, **kwargs)
            if self._forwards != len(self._micro_batches) + 1:
                self._tape.refuse("backward() runs twice after one forward; a recording has one backward for a forward")
            self._micro_batches.append(read_micro_batch(self._root, self._units))
            self._tape.add("loss")
            self._tape.stage, self._memory.default = "bwd", "tmp"
            result = original(*args, **kwargs)
            self._tape.add("backward_end")
            self._tape.stage = "clip"
            return result
        return tap

    def _checkpoint(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tap(*args: Any, **kwargs: Any) -> Any:
            self._tape.refuse("the model calls torch.utils.checkpoint itself; a recording knows checkpoint_wrapper and "
                              "transformers' gradient_checkpointing_enable")
            return original(*args, **kwargs)
        return tap

    def _before_step(self, *_: Any) -> None:
        self._tape.stage, self._memory.default = "opt", "opt_tmp"

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._stepped or not self._micro_batches or self._forwards != len(self._micro_batches):
            self._tape.refuse("optimizer.step() without a backward before it")
        self._stepped = True
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    self._memory.track(value, "opt", retag=True)
        self._tape.add("optim_step")

    def _zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tap(set_to_none: bool = True) -> None:
            if not set_to_none:
                self._tape.refuse("zero_grad(set_to_none=False) keeps gradients; a recording drops them")
            original(set_to_none=set_to_none)
            if self._stepped:
                self._tape.add("zero_grad")
                self._end_iteration()
            elif self._forwards:
                self._tape.refuse("zero_grad() stands between a forward and optimizer.step()")
        return tap

    def _begin_iteration(self) -> None:
        self._tape.events = []
        self._tape.stage, self._memory.default = "fwd", "act"
        self._forwards, self._stepped, self._marked, self._micro_batches = 0, False, False, []
        self._memory.begin_iteration()
        self._start = self._memory.live

    def _end_iteration(self) -> None:
        gc.collect()
        memory = self._memory
        self._iterations.append({"events": self._tape.events, "mem": {
            "start": self._start, "end": memory.live, "peak": memory.peak,
            "peak_by": dict(sorted(memory.peak_by.items())), "end_by": dict(sorted(memory.now_by().items()))}})
        self._accumulation.append(accumulation(self._micro_batches, self._case.get("mesh") is not None))
        self._begin_iteration()

    # Taps -------------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        modules = innermost_modules(self._root)
        for path in dict.fromkeys(path for unit in self._units for path in unit.paths):
            self._handles += self._marks(path, modules[path])
        # Before the runtime's own hooks, which stand at the head since the model was wrapped.
        self._handles.append(self._root.register_forward_pre_hook(self._before_forward, prepend=True, with_kwargs=True))
        self._handles.append(self._optimizer.register_step_pre_hook(self._before_step))
        self._handles.append(self._optimizer.register_step_post_hook(self._after_step))
        collectives.install(self._patches, self._tape, self._engine)
        (fsdp1 if self._engine == "fsdp1" else fsdp2).install(self._patches, self._tape)
        self._patches.wrap(torch.autograd, "backward", self._backward)
        if "ac" not in self._case:
            for owner, name in ((torch.utils.checkpoint, "_checkpoint_without_reentrant_generator"),
                                (torch.utils.checkpoint.CheckpointFunction, "forward")):
                self._patches.wrap(owner, name, self._checkpoint)
        self._patches.wrap(FullyShardedDataParallel, "no_sync", self._no_sync)
        for zeroing in (self._optimizer, self._root):
            self._patches.wrap(zeroing, "zero_grad", self._zero_grad)

    def _marks(self, path: str, module: nn.Module) -> list[Any]:
        def begin(*_: Any) -> None:
            self._tape.forward_depth += 1
            self._tape.add("fwd_begin", path)

        def end(*_: Any) -> None:
            self._tape.add("fwd_end", path)
            self._tape.forward_depth -= 1

        # fully_shard's hooks sit on this very module: the marks go inside of them.
        return [module.register_forward_pre_hook(begin),
                module.register_forward_hook(end, prepend=self._engine == "fsdp2")]

    def _stop_listening(self) -> None:
        self._patches.undo()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _count_what_exists(self) -> None:
        memory = self._memory
        for buffer in self._root.buffers():
            memory.track(buffer, "buf")
        for unit in self._units:
            if unit.handle is None:
                continue
            if self._engine == "fsdp1":
                memory.track(unit.handle.flat_param.data, "param")
            else:
                for parameter in unit.handle.fsdp_params:
                    memory.track(parameter._sharded_param_data, "param")
        for parameter in self._root.parameters():
            memory.track(getattr(parameter, "_local_tensor", parameter.data), "param")
        for value in tree_leaves(self._inputs):
            if isinstance(value, torch.Tensor):
                memory.track(value, "inp")

    # The result -------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self._tape.problem is None and (self._forwards or not self._iterations):
            self._tape.refuse("the recorded loop ends without optimizer.step()")
        if self._tape.problem is None and any(a != self._accumulation[0] for a in self._accumulation):
            self._tape.refuse("the recorded steps accumulate gradients in different ways")
        if self._tape.problem is not None:
            raise Refused(self._tape.problem)
        check_calls(self._plain, self._iterations[0]["events"], self._units)
        dtype = _common_dtype(self._plain)
        recording = self._document(dtype)
        tree = self._plain.tree
        self.path = write_recording(self._folder, self._name, recording, tree)

    def _document(self, dtype: str) -> dict[str, Any]:
        case = {"name": self._name, "kind": "run", "engine": self._case["engine"], "model": self._plain.name, **self._case}
        if dtype != "f32":
            case["dtype"] = dtype
        if self._accumulation[0] is not None:
            case["accum"] = self._accumulation[0]
        if self._tape.clipped:
            case["clip"] = True
        if self._plain.loss_in_model:
            case["loss_in_model"] = True
        if len(self._iterations) != 3:
            case["iters"] = len(self._iterations)
        versions = {"torch": torch_version()}
        if (transformers := transformers_version()) is not None:
            versions["transformers"] = transformers
        return {
            "format": "fsdplan.runtime-golden", "version": 1, "case": case, "versions": versions,
            "world": dist.get_world_size(), "rank": 0, "backend": dist.get_backend(),
            "model_tree": self._plain.name + (f"@{dtype}" if dtype != "f32" else ""),
            "units": [self._settled_row(unit) for unit in self._units], "iterations": self._compressed(),
        }

    def _settled_row(self, unit: Unit) -> dict[str, Any]:
        if "reshard_after_forward" in unit.row:  # only the first forward decides what the root does
            unit.row["reshard_after_forward"] = reshard_after_forward(unit.handle)
        return unit.row

    def _compressed(self) -> list[dict[str, Any]]:
        """Without the marks of a single micro-batch, and with `same_as` for iterations in which nothing changed."""
        if self._accumulation[0] is None:
            for iteration in self._iterations:
                iteration["events"] = _without_micro_batch(iteration["events"])
        result = list(self._iterations)
        for i in range(len(result) - 1, 0, -1):
            if result[i] == result[i - 1]:
                result[i] = {"same_as": i - 1}
        return result


def record(folder: str | Path, *, name: str, model: nn.Module, optimizer: torch.optim.Optimizer, plain: Description,
           inputs: Any = ()) -> Recorder:
    """Records the training steps that run inside of `with record(...):` into `FOLDER/NAME.json`.

    `model` is the outermost FSDP module, wrapped but not run yet; `optimizer` steps its parameters; `plain` is what
    `describe` returned for the model before it was wrapped. `inputs` may name tensors that exist before the first step,
    such as a batch that every step uses; others count from the forward that takes them.
    """
    return Recorder(folder, name, model, optimizer, plain, inputs)


def _common_dtype(plain: Description) -> str:
    """The one element type of the parameters; f32 when they differ, since then the tree alone says it."""
    tensors = {row["id"]: row["dtype"] for row in plain.tree["tensors"]}
    dtypes = {tensors[t] for module in plain.tree["modules"] for t in module.get("parameters", {}).values()}
    if len(dtypes) != 1:
        return "f32"
    dtype = dtypes.pop()
    return next((short for short, known in _LOW.items() if known == dtype), "f32")


_LOW = {short_dtype(dtype): long_dtype(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float64)}


def _without_micro_batch(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The peak before the mark becomes part of the peak before the next event."""
    kept: list[dict[str, Any]] = []
    peak = 0
    for event in events:
        if event["e"] == "microbatch":
            peak = event["m"][1]
            continue
        event["m"][1] = max(event["m"][1], peak)
        peak = 0
        kept.append(event)
    return kept
