import torch
from toys import Block
from torch.distributed.fsdp import fully_shard

sharding = {"reshard_after_forward": 2}
for module in reversed(list(model.modules())):
    if module is not model and isinstance(module, (Block, )):
        fully_shard(module, **sharding)
fully_shard(model, **sharding)
