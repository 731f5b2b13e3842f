import torch
from toys import Block
from torch.distributed.fsdp import fully_shard
from transformers.modeling_layers import GradientCheckpointingLayer

checkpointed = {model.get_submodule(name) for name in (
    *(f"layers.{i}" for i in (0, 2, )),
)}
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
for module in model.modules():
    if isinstance(module, GradientCheckpointingLayer):
        module.gradient_checkpointing = module in checkpointed
sharding = {}
for module in reversed(list(model.modules())):
    if module is not model and isinstance(module, (Block, )):
        fully_shard(module, **sharding)
fully_shard(model, **sharding)
