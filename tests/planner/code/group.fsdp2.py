import torch
from torch.distributed.fsdp import fully_shard

sharding = {}
for name in (
    *(f"layers.{i}" for i in range(2)),
):
    fully_shard(model.get_submodule(name), **sharding)
fully_shard([model.get_submodule(name) for name in ("layers.2.norm", "layers.2.mlp")], reshard_after_forward=False, **sharding)
for name in (
    "layers.2",
):
    fully_shard(model.get_submodule(name), **sharding)
fully_shard(model, **sharding)
