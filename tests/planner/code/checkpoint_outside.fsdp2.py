import torch
from toys import Block
from torch.distributed.fsdp import fully_shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

checkpointed = {model.get_submodule(name) for name in (
    *(f"layers.{i}" for i in (0, 2, )),
)}
sharding = {}
for module in reversed(list(model.modules())):
    if module is not model and isinstance(module, (Block, )):
        fully_shard(module, **sharding)
fully_shard(model, **sharding)
apply_activation_checkpointing(model, check_fn=lambda m: m in checkpointed)
