"""A real step of a model on the CPU against its export, operator by operator."""
import torch
from replay import Memory, broken_law, replay
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from fsdplan.dataflow import default_loss
from fsdplan.memory import LiveBytes

ENGINE = "autograd::engine::evaluate_function: "


class Allocations(LiveBytes):
    """Also lists the operators that allocate: name, bytes of what they allocate, bytes alive then."""

    def __init__(self):
        super().__init__()
        self.rows, self._new = [], []

    def _start(self, storage, category):
        super()._start(storage, category)
        self._new += [storage.nbytes()] if storage.nbytes() else []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.lift_fresh.default:  # a constant of the program
            return func(*args)
        self._new = []
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self._new:
            self.rows.append((str(func), self._new, self.live))
        return result


def real_step(model, args, kwargs):
    """(bytes at the ends and peaks of forward and backward, operators that allocate)"""
    memory = Allocations()
    constants = [value for module in model.modules() for value in vars(module).values()]
    for value in [*model.parameters(), *model.buffers(), *tree_leaves((args, kwargs)), *constants]:
        if isinstance(value, torch.Tensor):
            memory.track(value)
    base, result = memory.live, {}
    with memory:
        memory.peak = memory.live
        output = model(*args, **kwargs)
        value = default_loss(output)
        del output
        result |= {"forward_peak_bytes": memory.peak - base, "after_forward_bytes": memory.live - base}
        memory.peak = memory.live
        value.backward()
        del value
        result |= {"backward_peak_bytes": memory.peak - base, "after_backward_bytes": memory.live - base}
    return result, [(name, new, live - base) for name, new, live in memory.rows]


def exported_step(operators):
    memory, rows = Memory(operators), []
    for row in (*operators["forward"], *operators["backward"]):
        live = memory.run(row, in_place=False)
        if "new" in row:
            rows.append((operators["names"][row["op"]], [operators["storages"][s] for s in row["new"]], live))
    return replay(operators), rows


def additions(model, args, kwargs):
    """Of each gradient that the engine adds to another, in order: whether in place."""
    value = default_loss(model(*args, **kwargs))
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        value.backward()
    events = sorted(profiled.events(), key=lambda event: event.time_range.start)
    return [event.name == "aten::add_" for event in events if event.name in ("aten::add", "aten::add_")
            and event.cpu_parent and event.cpu_parent.name.startswith(ENGINE)]


def difference(document, model, args, kwargs):
    """What the export says of the step and the step does not show; None when they agree."""
    if law := broken_law(document):
        return law
    operators = document["operators"]
    new, new_rows = exported_step(operators)
    real, real_rows = real_step(model, args, kwargs)
    for i, (a, b) in enumerate(zip(new_rows, real_rows)):
        if a != b:
            return f"allocation {i}: {a} instead of {b}"
    if len(new_rows) != len(real_rows):
        return f"{len(new_rows)} operators that allocate instead of {len(real_rows)}"
    if new != real:
        return f"{new} instead of {real}"
    model.zero_grad()
    real = additions(model, args, kwargs)
    count = sum("reuses" in row for row in operators["backward"])
    if count != sum(real):
        return f"{count} additions in place instead of {sum(real)}"
    return None
