import torch
from toys import Block
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from functools import partial
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper

def selective():
    products = {False: 0, True: 0}

    def policy(context, op, *args, **kwargs):
        products[context.is_recompute] += op is torch.ops.aten.mm.default
        product = op is torch.ops.aten.mm.default and products[context.is_recompute] % 2 == 1
        keep = product or "_scaled_dot_product" in op._schema.name
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)

model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    device_id=torch.cuda.current_device(),
)
apply_activation_checkpointing(model, checkpoint_wrapper_fn=partial(checkpoint_wrapper, context_fn=selective), check_fn=lambda m: isinstance(m, (Block, )))
