import torch
from toys import Block
from torch.distributed.fsdp import fully_shard
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

units = [name for name, module in model.named_modules() if module is not model and isinstance(module, (Block, ))]
apply_activation_checkpointing(model, checkpoint_wrapper_fn=partial(checkpoint_wrapper, context_fn=selective), check_fn=lambda m: isinstance(m, (Block, )))
sharding = {}
for name in reversed(units):
    fully_shard(model.get_submodule(name), **sharding)
fully_shard(model, **sharding)
