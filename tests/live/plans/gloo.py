"""Runs a function on several ranks of a gloo process group, one process each."""
import contextlib
import multiprocessing
import os
import pathlib
import tempfile
import traceback

import torch
import torch.distributed as dist

from fsdplan.compat import reduce_scatter_name
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
        with _averages():
            function(*arguments)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        text = traceback.format_exc()
        pathlib.Path(f"{os.path.dirname(store)}/error.{rank}").write_text(text)
        os._exit(1)
    os._exit(0)  # without what was inherited from the parent


@contextlib.contextmanager
def _averages():
    """gloo has no average, which fully_shard asks for: a sum, divided afterwards."""
    def reduce_scatter(original):
        def tap(output, input, op=dist.ReduceOp.SUM, group=None, async_op=False):
            work = original(output, input, op=_sum_for(op), group=group, async_op=async_op)
            return _divided(output, op, group, work)
        return tap

    def all_reduce(original):
        def tap(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
            work = original(tensor, op=_sum_for(op), group=group, async_op=async_op)
            return _divided(tensor, op, group, work)
        return tap

    patches = Patches()
    patches.wrap(dist, reduce_scatter_name(), reduce_scatter)
    patches.wrap(dist, "all_reduce", all_reduce)
    try:
        yield
    finally:
        patches.undo()


def _sum_for(op):
    return dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op


def _divided(result, op, group, work):
    if op == dist.ReduceOp.AVG:
        if work is not None:
            work.wait()
        result.div_(dist.get_world_size(group))
    return work
