"""Runs a function on several ranks of a gloo process group, one process each."""
import contextlib
import multiprocessing
import os
import pathlib
import tempfile
import traceback

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from fsdplan.compat import gather_name, reduce_scatter_name
from fsdplan.events import Patches


def on_ranks(world, function, *arguments, seconds=120):
    """What goes wrong on the first rank that fails, or None. `function` gets the arguments in each process."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=_rank, args=(rank, world, store, function, arguments)) for rank in range(world)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(seconds)
            if process.exitcode != 0:  # the others wait for it
                for other in processes:
                    other.terminate()
        for process in processes:
            process.join()
        texts = [path.read_text() for path in sorted(pathlib.Path(folder).glob("error.*"))]
        failed = [process for process in processes if process.exitcode != 0]
        return (texts[0] if texts else f"exit status {failed[0].exitcode}") if failed else None


def _rank(rank, world, store, function, arguments):
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(store, world))
        with _on_copies():
            function(*arguments)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        text = traceback.format_exc()
        pathlib.Path(f"{os.path.dirname(store)}/error.{rank}").write_text(text)
        os._exit(1)
    os._exit(0)  # without what was inherited from the parent


@contextlib.contextmanager
def _on_copies():
    """The collectives of FSDP, on copies of their tensors.

    gloo's threads hold a tensor for a moment longer than the call, and a recording that counts bytes would see them; nobody
    counts the copies. And gloo has no average, which fully_shard asks for: a sum, divided afterwards.
    """
    def gather(original):
        def tap(output_tensor, input_tensor, group=None, async_op=False):
            with _disable_current_modes():
                copy = torch.empty_like(output_tensor)
                original(copy, input_tensor.clone(), group=group)
                output_tensor.copy_(copy)
        return tap

    def reduce_scatter(original):
        def tap(output, input, op=dist.ReduceOp.SUM, group=None, async_op=False):
            with _disable_current_modes():
                copy = torch.empty_like(output)
                original(copy, input.clone(), op=_sum_for(op), group=group)
                output.copy_(copy).div_(_divisor(op, group))
        return tap

    def all_reduce(original):
        def tap(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
            with _disable_current_modes():
                copy = tensor.clone()
                original(copy, op=_sum_for(op), group=group)
                tensor.copy_(copy).div_(_divisor(op, group))
        return tap

    patches = Patches()
    patches.wrap(dist, gather_name(), gather)
    patches.wrap(dist, reduce_scatter_name(), reduce_scatter)
    patches.wrap(dist, "all_reduce", all_reduce)
    try:
        yield
    finally:
        patches.undo()


def _sum_for(op):
    return dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op


def _divisor(op, group):
    return dist.get_world_size(group) if op == dist.ReduceOp.AVG else 1
