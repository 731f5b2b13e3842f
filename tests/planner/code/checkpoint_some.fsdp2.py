import torch
from toys import Block
from torch.distributed.fsdp import fully_shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

units = [name for name, module in model.named_modules() if module is not model and isinstance(module, (Block, ))]
checkpointed = {model.get_submodule(name) for name in (
    *(f"layers.{i}" for i in (0, 2, )),
)}
apply_activation_checkpointing(model, check_fn=lambda m: m in checkpointed)
sharding = {}
for name in reversed(units):
    fully_shard(model.get_submodule(name), **sharding)
fully_shard(model, **sharding)
