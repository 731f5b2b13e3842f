#!/usr/bin/env python3
"""Checkpoints that PyTorch saves here on 2 and 4 ranks, read by fsdplan: names, pieces, files, sizes, totals.

Saved with every state dict type of FSDP1, with FSDP2 (also on a mesh of replicas), by torch.save, by DCP (synchronous,
asynchronous, several threads, safetensors), by safetensors and by accelerate. What PyTorch's own readers say of the files
becomes a recording of layouts, which `fsdplan verify` compares with what it finds in them and with the sizes that it
predicts; what the ranks held becomes the pieces that `fsdplan inspect` must list. Needs torch of requirements.txt, and
safetensors and accelerate, which come with the other packages there.

usage: read_checkpoints.py --fsdplan PROGRAM [--keep FOLDER]
"""
import argparse
import contextlib
import datetime
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings
import zipfile

import safetensors
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from accelerate.utils import fsdp_utils
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     get_optimizer_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel as FSDP,
                                    StateDictType, fully_shard)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

SEVERAL_THREADS = "dcp_threads"


class Net(nn.Module):
    """Rows that do not divide evenly, a parameter of fewer rows than ranks, a tied one, and a buffer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(37, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 130), nn.GELU(), nn.Linear(130, 64)) for _ in range(2))
        self.few = nn.Parameter(torch.zeros(3))
        self.head = nn.Linear(64, 37, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(5))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x).sum() * self.few.sum() * self.scale.sum()


def trained(model, optimizer):
    for _ in range(2):
        model(torch.arange(10).view(2, 5)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def fsdp1(mesh=None):
    options = {"use_orig_params": True, "device_id": torch.device("cpu"), "device_mesh": mesh}
    model = Net()
    for i, block in enumerate(model.blocks):
        model.blocks[i] = FSDP(block, **options)
    model = FSDP(model, **options)
    return trained(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def fsdp2(mesh=None, dtype=torch.float32, optimizer=torch.optim.AdamW):
    model = Net().to(dtype)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return trained(model, optimizer(model.parameters(), lr=1e-3))


def state_of_fsdp1(model, optimizer, kind):
    configs = {StateDictType.FULL_STATE_DICT: (FullStateDictConfig(offload_to_cpu=False),
                                               FullOptimStateDictConfig(offload_to_cpu=False))}
    with FSDP.state_dict_type(model, kind, *configs.get(kind, (None, None))):
        state = {"model": model.state_dict()}
        if kind != StateDictType.LOCAL_STATE_DICT:
            state["optim"] = FSDP.optim_state_dict(model, optimizer)
    return state


def state_of_any(model, optimizer, **options):
    options = StateDictOptions(**options)
    return {"model": get_model_state_dict(model, options=options),
            "optim": get_optimizer_state_dict(model, optimizer, options=options)}


def each(state, path=()):
    """Tensors of a state dict by their name."""
    if isinstance(state, torch.Tensor):
        yield ".".join(map(str, path)), state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from each(value, (*path, key))
    elif isinstance(state, (list, tuple)):
        for i, value in enumerate(state):
            yield from each(value, (*path, i))


def pieces(state, rank):
    """What this rank holds: name, dtype, whole shape, kind, and its pieces as offset and shape."""
    out = {}
    for name, value in each(state):
        if isinstance(value, DTensor):
            shape, offset = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
            held = ["DTensor", [[list(offset), list(shape)]]]
        elif isinstance(value, ShardedTensor):
            held = ["ShardedTensor", [[list(s.metadata.shard_offsets), list(s.metadata.shard_sizes)]
                                      for s in value.local_shards()]]
        else:
            held = ["plain", [[[0] * value.dim(), list(value.shape)]]]
        out[name] = [str(value.dtype)[6:], list(value.shape), *held, rank]
    return out


def untied(state):
    """safetensors refuses two names of one memory."""
    return {name: value for name, value in state.items() if name != "head.weight"}


class Saver:
    """Saves on every rank and notes what each held."""

    def __init__(self, folder, rank):
        self.folder, self.rank, self.held = folder, rank, {}

    def path(self, name):
        path = self.folder / name
        path.mkdir(exist_ok=True)
        dist.barrier()
        return path

    def each_rank(self, name, state):
        torch.save(state, self.path(name) / f"rank{self.rank}.pt")
        self.held[name] = pieces(state, self.rank)

    def rank0(self, name, state):
        path = self.path(name)
        if self.rank == 0:
            torch.save(state, path / "full.pt")
            self.held[name] = pieces(state, None)

    def dcp(self, name, state, **options):
        dcp.save(state, checkpoint_id=self.path(name), **options)
        self.held[name] = pieces(state, self.rank)


    def accelerate(self, name, model, optimizer, kind, use_dcp=True):
        """What accelerate's save_state() writes of model and optimizer."""
        path = str(self.path(name))
        plugin = types.SimpleNamespace(state_dict_type=kind, state_dict_config=types.SimpleNamespace(), fsdp_version=2,
                                       optim_state_dict_config=None)
        process = types.SimpleNamespace(process_index=self.rank, num_processes=dist.get_world_size())
        fsdp_utils.save_fsdp_model(plugin, process, model, path, use_dcp=use_dcp)
        fsdp_utils.save_fsdp_optimizer(plugin, process, optimizer, model, path, use_dcp=use_dcp)
        full = kind == StateDictType.FULL_STATE_DICT
        state = state_of_any(model, optimizer, full_state_dict=full)
        if full or not use_dcp:  # files of their own, without a key before
            state = {**state["model"], **state["optim"]}
        else:
            state = {"model": state["model"], "optimizer": state["optim"]}
        if not full or self.rank == 0:
            self.held[name] = pieces(state, self.rank)


def save_all(saver, world):
    mesh = init_device_mesh("cpu", (world,))
    model, optimizer = fsdp1()
    full = state_of_fsdp1(model, optimizer, StateDictType.FULL_STATE_DICT)
    sharded = state_of_fsdp1(model, optimizer, StateDictType.SHARDED_STATE_DICT)
    saver.rank0("fsdp1_full", full)
    saver.each_rank("fsdp1_sharded", sharded)
    saver.each_rank("fsdp1_local", state_of_fsdp1(model, optimizer, StateDictType.LOCAL_STATE_DICT))
    saver.dcp("fsdp1_dcp", sharded)
    saver.each_rank("fsdp1_mesh", state_of_fsdp1(*fsdp1(mesh), StateDictType.SHARDED_STATE_DICT))

    model, optimizer = fsdp2(mesh)
    state = state_of_any(model, optimizer)
    saver.each_rank("fsdp2_raw", {"model": model.state_dict(), "optim": optimizer.state_dict()})
    saver.rank0("fsdp2_full", state_of_any(model, optimizer, full_state_dict=True))
    saver.dcp("fsdp2_dcp", state)
    saver.dcp("fsdp2_dcp_flat", state_of_any(model, optimizer, flatten_optimizer_state_dict=True))
    path = saver.path(SEVERAL_THREADS)
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, thread_count=3))
    saver.held[SEVERAL_THREADS] = pieces(state, saver.rank)
    path = saver.path("fsdp2_dcp_async")
    dcp.async_save(state, checkpoint_id=path).result()
    saver.held["fsdp2_dcp_async"] = pieces(state, saver.rank)

    for consolidate in (False, True):
        name = "hf_consolidated" if consolidate else "hf_shards"
        model_state = untied(get_model_state_dict(model))
        dcp.save(model_state, storage_writer=HuggingFaceStorageWriter(
            str(saver.path(name)), save_distributed=True, enable_consolidation=consolidate))
        saver.held[name] = pieces(model_state, saver.rank)
    sharded_type = StateDictType.SHARDED_STATE_DICT
    saver.accelerate("accelerate_dcp", model, optimizer, sharded_type)
    saver.accelerate("accelerate_ranks", model, optimizer, sharded_type, use_dcp=False)
    saver.accelerate("accelerate_full", model, optimizer, StateDictType.FULL_STATE_DICT)
    path = saver.path("safetensors")
    full = untied(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)))
    if saver.rank == 0:
        safetensors.torch.save_file(full, path / "model.safetensors", {"format": "pt"})
    saver.dcp("fsdp2_bf16_sgd", state_of_any(*fsdp2(mesh, torch.bfloat16, torch.optim.SGD)))
    if world == 4:
        replicas = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model, optimizer = fsdp2(replicas)
        saver.each_rank("hsdp_raw", {"model": model.state_dict()})
        saver.dcp("hsdp_dcp", state_of_any(model, optimizer))


def run_rank(rank, world, folder):
    warnings.filterwarnings("ignore")
    fsdp_utils.logger = logging.getLogger("accelerate")  # its own one wants an Accelerator
    torch.manual_seed(0)
    dist.init_process_group("cpu:gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=120))
    saver = Saver(folder / "files", rank)
    save_all(saver, world)
    (folder / f"held{rank}.json").write_text(json.dumps(saver.held))
    dist.barrier()
    dist.destroy_process_group()


def dcp_layout(path):
    metadata = dcp.FileSystemReader(path).read_metadata()
    tensors, values = {}, []
    for name, entry in metadata.state_dict_metadata.items():
        if hasattr(entry, "chunks"):
            tensors[name] = {"size": list(entry.size), "dtype": str(entry.properties.dtype)[6:],
                             "chunks": [{"offsets": list(c.offsets), "sizes": list(c.sizes)} for c in entry.chunks]}
        else:
            values.append(name)
    storage = [{"fqn": index.fqn, "offset": None if index.offset is None else list(index.offset),
                "file": place.relative_path, "at": place.offset, "length": place.length}
               for index, place in metadata.storage_data.items()]
    return {"files": {p.name: p.stat().st_size for p in path.iterdir()}, "version": metadata.version, "tensors": tensors,
            "byte_entries": values, "storage": storage,
            "planner_paths": {name: list(keys) for name, keys in metadata.planner_data.items()}}


def torch_layout(path):
    entries = []
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        for info in archive.infolist():
            file.seek(info.header_offset + 26)
            lengths = file.read(4)
            entries.append({"name": info.filename, "size": info.file_size, "payload_offset": info.header_offset + 30 +
                            int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")})
    return {"bytes": path.stat().st_size, "entries": entries}


def safetensors_layout(path):
    content = path.read_bytes()
    with safetensors.safe_open(path, "pt"):
        pass  # the library takes it
    length = int.from_bytes(content[:8], "little")
    return {"bytes": len(content), "header_bytes": length, "header": json.loads(content[8:8 + length])}


def layout(path):
    item = {"save": path.name}
    if (path / ".metadata").exists():
        item["dcp"] = dcp_layout(path)
    for ending, kind, describe in (("pt", "torch_files", torch_layout),
                                   ("safetensors", "safetensors_files", safetensors_layout)):
        files = {str(p.relative_to(path)): describe(p) for p in sorted(path.rglob(f"*.{ending}"))}
        if files:
            item[kind] = files
    return item


def inspected(program, path):
    done = subprocess.run([program, "inspect", path, "--checkpoint", "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{path}: inspect ended with {done.returncode}: {done.stderr}")
        return None
    return json.loads(done.stdout)


def expected_pieces(held):
    """Over all ranks: name -> dtype, shape, kind, and the set of pieces."""
    out = {}
    for of_rank in held:
        for name, (dtype, shape, kind, boxes, _) in of_rank.items():
            entry = out.setdefault(name, [dtype, shape, kind, set()])
            entry[3].update((tuple(o), tuple(s)) for o, s in boxes)
    return out


def compare(name, found, held, problems):
    """What inspect lists against what the ranks held when they saved. DCP and safetensors keep no kinds."""
    expected = expected_pieces(held)
    if not found["complete"]:
        problems.append(f"{name}: is said to be incomplete: {found['findings']}")
    listed = {tensor["name"]: (part, tensor) for part in [found, *found["parts"]] for tensor in part["tensors"]}
    if listed.keys() != expected.keys():
        problems.append(f"{name}: names differ: {sorted(listed.keys() ^ expected.keys())[:5]}")
    for tensor, (dtype, shape, kind, boxes) in expected.items():
        if tensor not in listed:
            continue
        part, got = listed[tensor]
        got_boxes = {(tuple(c["offset"]), tuple(c["shape"])) for c in got["chunks"]}
        if name == "hf_consolidated":  # the pieces are in its folder sharded
            boxes = {((0,) * len(shape), tuple(shape))}
        elif part["format"].startswith("DCP"):
            # FSDP1 drops the pieces without rows; a rank's own empty piece is written once.
            boxes = {b for b in boxes if 0 not in b[1]}
            got_boxes = {b for b in got_boxes if 0 not in b[1]}
        if (got["dtype"], got["shape"]) != (dtype, shape) or got_boxes != boxes:
            problems.append(f"{name}: {tensor}: held {dtype} {shape} {sorted(boxes)}, listed {got}")
        if part["format"].startswith("torch.save") and got["saved_as"] != kind:
            problems.append(f"{name}: {tensor}: held as {kind}, listed as {got['saved_as']}")
    numel = sum(torch.Size(shape).numel() for _, shape, _, _ in expected.values())
    listed_numel = found["model"]["numel"] + found["optimizer_state"]["numel"]
    if numel != listed_numel:
        problems.append(f"{name}: {numel} elements held, {listed_numel} listed")


KEYS = {"fsdp2_raw": "by_position", "fsdp2_dcp_flat": "by_flattened_name", "fsdp1_local": "none", "hsdp_raw": "none",
        "hf_shards": "none", "hf_consolidated": "none", "safetensors": "none",
        "fsdp2_bf16_sgd": "none"}  # SGD without momentum has no state


def check(program, world, folder):
    (folder / "files").mkdir(parents=True)
    torch.multiprocessing.spawn(run_rank, (world, folder), world)
    held = [json.loads((folder / f"held{rank}.json").read_text()) for rank in range(world)]
    problems = []
    items = {}
    for path in sorted((folder / "files").iterdir()):
        name = path.name
        if not name.startswith("accelerate"):  # made of others, compared below
            items[name] = layout(path)
        found = inspected(program, path)
        if found is None:
            problems.append(f"{name}: not read")
            continue
        of_ranks = [rank[name] for rank in held if name in rank]
        if of_ranks:
            compare(name, found, of_ranks, problems)
        if found["optimizer_keys"] != KEYS.get(name, "by_name"):
            problems.append(f"{name}: optimizer keys {found['optimizer_keys']}")
        if "torch.save of each" in found["format"] and found["ranks"] != world:
            problems.append(f"{name}: {found['ranks']} ranks")
    recording = {"format": "fsdplan.checkpoint-layout", "version": 1, "items": items, "safetensors_cases": {}}
    (folder / "layout.json").write_text(json.dumps(recording))
    for problem in problems:
        print(f"{world} ranks: {problem}")
    print(f"{world} ranks: {len(items)} checkpoints, {len(problems)} problems", flush=True)
    verified = subprocess.run([program, "verify", folder / "layout.json"], check=False)
    return not problems and verified.returncode == 0 and len(items) >= 14


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fsdplan", required=True)
    parser.add_argument("--keep", help="folder for the checkpoints instead of a temporary one")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(options.keep or stack.enter_context(tempfile.TemporaryDirectory()))
        results = [check(options.fsdplan, world, folder / f"ranks{world}") for world in (2, 4)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
