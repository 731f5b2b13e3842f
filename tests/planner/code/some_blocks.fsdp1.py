import torch
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, BackwardPrefetch

units = {model.get_submodule(name) for name in (
    "layers.2.mlp",
    *(f"layers.{i}" for i in (0, 3, )),
)}
model = FSDP(
    model,
    auto_wrap_policy=CustomPolicy(lambda module: module in units),
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    use_orig_params=True,
    backward_prefetch=BackwardPrefetch.BACKWARD_POST,
    limit_all_gathers=False,
    device_id=torch.cuda.current_device(),
)
