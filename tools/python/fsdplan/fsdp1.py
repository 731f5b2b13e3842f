"""Taps on the runtime of FullyShardedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp import _flat_param as flat_param_module
from torch.distributed.fsdp import _runtime_utils as runtime

from .events import Patches, Tape

Function = Callable[..., Any]


def install(patches: Patches, tape: Tape) -> None:
    memory = tape.memory

    def gather(original: Function) -> Function:
        def tap(handle: Any, padded_unsharded: Any) -> Any:
            memory.track(padded_unsharded, "unsharded", retag=True)
            with tape.within(handle):
                return original(handle, padded_unsharded)
        return tap

    def low_precision_shard(original: Function) -> Function:
        def tap(handle: Any) -> Any:
            with memory.tagged("mp_shard"):
                memory.track(handle.flat_param._mp_shard, "mp_shard", retag=True)
                return original(handle)
        return tap

    def reduce(original: Function) -> Function:
        def tap(state: Any, handle: Any, *rest: Any) -> Any:
            with tape.within(handle, "rs"):
                return original(state, handle, *rest)
        return tap

    def reshard(original: Function) -> Function:
        def tap(state: Any, handle: Any, free_unsharded: bool) -> Any:
            result = original(state, handle, free_unsharded)
            tape.add("reshard", handle, free=1 if free_unsharded else 0)
            return result
        return tap

    def prefetch(original: Function) -> Function:
        def tap(*args: Any, **kwargs: Any) -> Any:
            with tape.prefetch():
                return original(*args, **kwargs)
        return tap

    def pre_backward(original: Function) -> Function:
        def tap(state: Any, module: Any, handle: Any, grad: Any, *rest: Any) -> Any:
            if handle and not getattr(handle, "_ran_pre_backward_hook", False):
                tape.add("pre_bwd", handle)
            return original(state, module, handle, grad, *rest)
        return tap

    def post_backward(original: Function) -> Function:
        def tap(state: Any, handle: Any, *rest: Any) -> Any:
            flat = handle.flat_param
            if flat.grad is not None:
                memory.track(flat.grad, "ugrad", retag=True)
            tape.add("post_bwd", handle, grad=0 if flat.grad is None else 1)
            result = original(state, handle, *rest)
            if getattr(flat, "_saved_grad_shard", None) is not None:
                memory.track(flat._saved_grad_shard, "sgrad", retag=True)
            return result
        return tap

    def post_backward_frozen(original: Function) -> Function:
        def tap(state: Any, handle: Any, *rest: Any) -> Any:
            tape.add("post_bwd_frozen", handle)
            return original(state, handle, *rest)
        return tap

    def final_callback(original: Function) -> Function:
        def tap(state: Any, module: Any) -> Any:
            tape.add("final_begin")
            result = original(state, module)
            tape.add("final_end")
            return result
        return tap

    def clip(original: Function) -> Function:
        def tap(module: Any, max_norm: Any, norm_type: float = 2.0) -> Any:
            if float(norm_type) != 2.0:
                tape.refuse(f"clip_grad_norm_ with norm_type {norm_type}; a recording has only the 2-norm")
            with tape.clip():
                return original(module, max_norm, norm_type)
        return tap

    patches.wrap(flat_param_module.FlatParamHandle, "_all_gather_flat_param", gather)
    patches.wrap(flat_param_module.FlatParamHandle, "_use_low_precision_shard", low_precision_shard)
    patches.wrap(runtime, "_reduce_grad", reduce)
    patches.wrap(runtime, "_reduce_grad_no_shard", reduce)
    patches.wrap(runtime, "_reshard", reshard)
    patches.wrap(runtime, "_prefetch_handle", prefetch)
    patches.wrap(runtime, "_pre_backward_hook", pre_backward)
    patches.wrap(runtime, "_post_backward_hook", post_backward)
    patches.wrap(runtime, "_post_backward_reshard_only_hook", post_backward_frozen)
    patches.wrap(runtime, "_post_backward_final_callback", final_callback)
    patches.wrap(FullyShardedDataParallel, "clip_grad_norm_", clip)
