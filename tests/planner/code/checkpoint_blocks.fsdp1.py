import torch
from toys import Block
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    device_id=torch.cuda.current_device(),
)
apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Block, )))
