"""A plan of fsdplan: the units of a model and all settings of FSDP, in the words of PyTorch.

Nothing here needs torch before a plan meets a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

PrefetchLists = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class PlannedUnit:
    """One FSDP module, or the modules of one fully_shard call."""

    modules: tuple[str, ...]  # paths; "" is the root
    numel: int  # elements that it manages
    reshard_after_forward: bool | int | None = None  # fsdp2 only


@dataclass(frozen=True)
class PlannedParameter:
    name: str  # its first one, where it is tied
    shape: tuple[int, ...]
    dtype: str  # as torch names it: "float32"
    requires_grad: bool


@dataclass(frozen=True)
class Checkpointing:
    """Activation checkpointing. `selective` keeps attention and every other matrix product of each module."""

    modules: tuple[str, ...] = ()
    placement: str = "inside"  # unit(checkpoint(module)); outside: checkpoint(unit(module)); forward: the model's own
    selective: bool = False


@dataclass(frozen=True)
class FlatPrefetch:
    """What FullyShardedDataParallel gathers early."""

    backward: str | None = "BACKWARD_PRE"
    forward: bool = False
    limit_all_gathers: bool = True


@dataclass(frozen=True)
class ListedPrefetch:
    """Module path -> paths of what it gathers early, for fully_shard; empty: PyTorch's own order."""

    forward: PrefetchLists = ()
    backward: PrefetchLists = ()


@dataclass(frozen=True)
class Plan:
    """How to train one model with FSDP. Get one from `fsdplan.load`.

    `apply` does everything. Whoever calls FSDP himself takes the parts: `checkpoint`, `auto_wrap_policy` and
    `fsdp_arguments`. The batch, the accumulation and the optimizer are what the plan was made for; they are the training
    loop's to use.
    """

    source: str  # the file
    runtime: str  # fsdp1: FullyShardedDataParallel, fsdp2: fully_shard
    torch: str  # the version whose behaviour was planned with
    replicate: int
    shard: int  # ranks that a parameter is split over
    strategy: str
    param_dtype: str | None
    reduce_dtype: str | None
    buffer_dtype: str | None
    offload: bool
    units: tuple[PlannedUnit, ...]  # in the order of the calls, the root last
    checkpointing: Checkpointing
    prefetch: FlatPrefetch | ListedPrefetch
    use_orig_params: bool
    parameters: tuple[PlannedParameter, ...]  # of the model that was planned
    batch: int  # sequences of one rank and micro-batch
    sequence: int  # tokens of each
    accumulate: int  # micro-batches of a step
    no_sync: bool  # gradients are reduced in the last micro-batch only
    optimizer: str
    loss: str
    attention: str

    @property
    def world(self) -> int:
        return self.replicate * self.shard

    def check(self, model: nn.Module) -> None:
        """Refuses a model that is not the one that was planned, and names the first difference.

        The model is plain, without FSDP or checkpoint wrappers; it may be on the meta device.
        """
        from .plan_check import check_model

        check_model(self, model)

    def apply(self, model: nn.Module, mesh: DeviceMesh | None = None) -> nn.Module:
        """Checks the model, checkpoints and shards it, and returns the module to train with.

        With fully_shard that is the model itself. The process group must exist and have the plan's ranks. `mesh` is made
        on the accelerator, else on the CPU; one that is given has the dimensions that `mesh_shape` names.
        """
        from .plan_apply import apply_plan

        return apply_plan(self, model, mesh)

    def checkpoint(self, model: nn.Module) -> None:
        """Checkpoints the plan's modules, in place: before FSDP, or after it where the placement is "outside"."""
        from .plan_checkpoint import checkpoint_modules

        checkpoint_modules(self, model)

    def auto_wrap_policy(self) -> Any:
        """For FullyShardedDataParallel(auto_wrap_policy=...): draws the plan's units and no others."""
        from .plan_fsdp1 import PlannedUnits

        return PlannedUnits(self)

    def fsdp_arguments(self, mesh: DeviceMesh | None = None) -> dict[str, Any]:
        """The other keyword arguments of FullyShardedDataParallel. The process group must exist."""
        from .plan_fsdp1 import fsdp_arguments

        return fsdp_arguments(self, mesh)

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """(replicate, shard) where parameters are replicated across groups, else (shard,)."""
        return (self.replicate, self.shard) if self.is_hybrid else (self.world,)

    @property
    def is_hybrid(self) -> bool:
        return "HYBRID" in self.strategy
