"""Taps on the runtime of fully_shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import compat
from .events import Patches, Tape

Function = Callable[..., Any]


def install(patches: Patches, tape: Tape) -> None:
    memory = tape.memory
    widened: set[Any] = set()  # members with a gradient from earlier micro-batches in the wider reduction type

    def unshard(original: Function) -> Function:
        def tap(group: Any, async_op: bool = False) -> Any:
            with tape.within(group, "ag_in"):
                return original(group, async_op)
        return tap

    def wait_for_unshard(original: Function) -> Function:
        def tap(group: Any) -> Any:
            pending = bool(group._all_gather_result)
            with tape.within(group, "unsharded"):
                result = original(group)
            if pending:
                for parameter in group.fsdp_params:
                    for output in parameter.all_gather_outputs:
                        memory.track(output, "unsharded", retag=True)
                tape.add("copy_out", group)
            return result
        return tap

    def to_sharded(kind: str, already: str) -> Callable[[Function], Function]:
        def make(original: Function) -> Function:
            def tap(group: Any) -> Any:
                frees = not getattr(group, already)
                with tape.within(group, "post_fwd_shard"):
                    result = original(group)
                if frees:
                    tape.add(kind, group, free=1)
                return result
            return tap
        return make

    def prefetch(original: Function) -> Function:
        def tap(*args: Any) -> Any:
            with tape.prefetch():
                return original(*args)
        return tap

    def pre_backward(original: Function) -> Function:
        def tap(group: Any, *rest: Any) -> Any:
            if group._training_state != compat.param_group.TrainingState.PRE_BACKWARD:
                tape.add("pre_bwd", group)
            return original(group, *rest)
        return tap

    def post_backward(original: Function) -> Function:
        def tap(group: Any, *rest: Any) -> Any:
            # `held` keeps the last member's gradient of earlier micro-batches alive until the hook is over, some bytes longer
            # than PyTorch would. The recordings were made so, and bytes must mean the same in all.
            stored, held = 0, None
            for parameter in group.fsdp_params:
                fresh, held = _gradients(parameter)
                stored += (fresh is not None) + (parameter in widened if held is fresh else held is not None)
                for gradient in (fresh, held):
                    if gradient is not None:
                        memory.track(gradient, "ugrad", retag=True)
            fresh = gradient = None
            tape.add("post_bwd", group, grad=stored)
            with tape.within(group, "rs"):
                result = original(group, *rest)
            for parameter in group.fsdp_params:
                if parameter.sharded_param.grad is not None:
                    memory.track(parameter.sharded_param.grad, "sgrad", retag=True)
                widened.discard(parameter)
                if (kept := getattr(parameter, "unsharded_accumulated_grad", None)) is not None:
                    memory.track(kept, "ugrad", retag=True)
                    if kept.dtype is not parameter._unsharded_param.dtype:
                        widened.add(parameter)
            kept = None
            tape.add("post_bwd_end", group)
            del held
            return result
        return tap

    def final_callback(original: Function) -> Function:
        def tap(state: Any) -> Any:
            tape.add("final_begin")
            result = original(state)
            tape.add("final_end")
            return result
        return tap

    group = compat.param_group.FSDPParamGroup
    patches.wrap(group, "unshard", unshard)
    patches.wrap(group, "wait_for_unshard", wait_for_unshard)
    patches.wrap(group, "_to_sharded", to_sharded("reshard", "is_sharded"))
    patches.wrap(group, "_to_sharded_post_forward", to_sharded("reshard_pf", "is_sharded_post_forward"))
    patches.wrap(group, "_prefetch_unshard", prefetch)
    patches.wrap(group, "pre_backward", pre_backward)
    patches.wrap(group, "post_backward", post_backward)
    patches.wrap(compat.state.FSDPState, "_root_post_backward_final_callback", final_callback)


def _gradients(parameter: Any) -> tuple[Any, Any]:
    """What this backward has left, and what earlier ones without a reduction have left.

    Since 2.15 both are one tensor: earlier gradients in a wider type stay in the parameter and the new one is added.
    """
    fresh = getattr(getattr(parameter, "_unsharded_param", None), "grad", None)
    return fresh, getattr(parameter, "unsharded_accumulated_grad", None)
