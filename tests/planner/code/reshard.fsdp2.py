import torch
from torch.distributed.fsdp import fully_shard

sharding = {}
for name in (
    "layers.1.mlp",
):
    fully_shard(model.get_submodule(name), reshard_after_forward=4, **sharding)
for name in (
    *(f"layers.{i}" for i in (0, 2, )),
):
    fully_shard(model.get_submodule(name), reshard_after_forward=False, **sharding)
for name in (
    *(f"layers.{i}" for i in (1, 3, )),
):
    fully_shard(model.get_submodule(name), reshard_after_forward=True, **sharding)
fully_shard(model, **sharding)
