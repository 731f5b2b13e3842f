import torch
from toys import Block
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from transformers.modeling_layers import GradientCheckpointingLayer

checkpointed = {model.get_submodule(name) for name in (
    *(f"layers.{i}" for i in (0, 2, )),
)}
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
for module in model.modules():
    if isinstance(module, GradientCheckpointingLayer):
        module.gradient_checkpointing = module in checkpointed
model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    device_id=torch.cuda.current_device(),
)
