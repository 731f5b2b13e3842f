import torch
from torch.distributed.fsdp import fully_shard

sharding = {}
for name in (
    "layers.2.mlp",
    *(f"layers.{i}" for i in (0, 3, )),
):
    fully_shard(model.get_submodule(name), **sharding)
fully_shard(model, **sharding)
