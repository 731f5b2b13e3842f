import torch
from toys import Block
from torch.distributed.fsdp import fully_shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

units = [name for name, module in model.named_modules() if module is not model and isinstance(module, (Block, ))]
apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Block, )))
sharding = {}
for name in reversed(units):
    fully_shard(model.get_submodule(name), **sharding)
fully_shard(model, **sharding)
