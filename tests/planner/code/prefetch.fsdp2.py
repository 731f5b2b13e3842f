import torch
from toys import Block
from torch.distributed.fsdp import fully_shard

sharding = {}
for module in reversed(list(model.modules())):
    if module is not model and isinstance(module, (Block, )):
        fully_shard(module, **sharding)
fully_shard(model, **sharding)
order = [model.get_submodule(name) for name in (
    *(f"layers.{i}" for i in range(4)),
)]
for i, module in enumerate(order[:3]):
    module.set_modules_to_forward_prefetch(order[i + 1 : i + 3])
for name, targets in {
    "layers.3": ("layers.2", "layers.1",),
    "layers.1": ("layers.0",),
}.items():
    model.get_submodule(name).set_modules_to_backward_prefetch([model.get_submodule(target) for target in targets])
