"""How the micro-batches of a step synchronize gradients."""

from __future__ import annotations

from typing import Any

from torch import nn

from .errors import Refused
from .uniform import uniform
from .units import Unit, engine_of


def read_micro_batch(root: nn.Module, units: list[Unit]) -> dict[str, bool]:
    """The switches for gradient accumulation as they stand now."""
    if engine_of(root) == "fsdp1":
        sync = uniform("no_sync", {unit.fqn: unit.owner._sync_gradients for unit in units})
        return {"reduce": sync, "all_reduce": sync, "reshard": True, "last": True}
    groups = {unit.fqn: unit.handle for unit in units if unit.handle is not None}

    def same(attribute: str, older: str = "") -> bool:
        return bool(uniform(attribute, {path: getattr(g, attribute, getattr(g, older, True))
                                         for path, g in groups.items()}))

    reduce = same("reduce_grads", "reduce_scatter_grads")
    return {"reduce": reduce, "all_reduce": same("all_reduce_grads") if reduce else False,
            "reshard": same("reshard_after_backward"), "last": bool(units[0].owner._state_ctx.is_last_backward)}


def accumulation(micro_batches: list[dict[str, bool]], hybrid: bool) -> dict[str, Any] | None:
    """The `accum` of a case from what `read_micro_batch` saw at each backward of one iteration."""
    *earlier, last = micro_batches
    if not all(last.values()):
        raise Refused("the last backward before the optimizer's step does not reduce gradients in full")
    if not earlier:
        return None
    if any(flags != earlier[0] for flags in earlier):
        raise Refused("the micro-batches of a step synchronize gradients in different ways")
    first = earlier[0]
    accum: dict[str, Any] = {"n": len(micro_batches)}
    if first["reduce"] and (first["all_reduce"] or not hybrid):
        mode = "sync"
    else:
        mode = "no_all_reduce" if first["reduce"] else "no_sync"
    accum["mode"] = mode
    if mode == "no_sync":
        if not first["reshard"]:
            accum["keep_unsharded"] = True
        if not first["last"]:
            accum["last_backward"] = True
    elif not (first["reshard"] and first["last"]):
        raise Refused("parameters are kept unsharded between micro-batches that reduce gradients; a recording cannot "
                      "say that")
    return accum
