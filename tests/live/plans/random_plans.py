"""Random plans that PyTorch accepts, for any model: the wrap plan of docs/formats.md as a dictionary.

Units are blocks, their direct children, heads and norms behind them, and groups of these. A module can be one when the
forward calls it once and nobody outside of it holds its parameters.
"""
import collections
import random

from torch import nn

import fsdplan
from fsdplan.names import long_dtype, post_order
from fsdplan.submodules import is_checkpointing_layer
from fsdplan.wrapping import matching


def random_plan(model: nn.Module, plain: fsdplan.Description, blocks: list[str], runtime: str, world: int, seed: str) -> dict:
    """`blocks`: patterns of the repeated blocks' paths. The same seed gives the same plan."""
    draw = random.Random(seed)
    choice = _Choice(model, plain, matching(model, blocks), draw)
    hybrid = world == 4 and draw.random() < 0.3
    replicate = 2 if hybrid else 1
    low = draw.random() < 0.5
    plan = {
        "runtime": runtime, "torch": "2.13", "mesh": {"replicate": replicate, "shard": world // replicate},
        "param_dtype": "bfloat16" if low else None, "reduce_dtype": "float32" if low and draw.random() < 0.5 else None,
        "buffer_dtype": None, "offload": False, "batch": 2, "sequence": 16, "accumulate": draw.choice([1, 1, 2]),
        "optimizer": "adamw:for-loop", "loss": "cross-entropy", "attention": "sdpa",
        "activation_checkpointing": choice.checkpointing(),
        "parameters": [{"name": name, "shape": list(p.shape), "dtype": long_dtype(p.dtype), "requires_grad": p.requires_grad}
                       for name, p in model.named_parameters()],
    }
    plan["no_sync"] = plan["accumulate"] > 1 and draw.random() < 0.5
    if runtime == "fsdp1":
        sharded = ["HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"] if hybrid else ["FULL_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"]
        units = [[path] for path in choice.units()] + [[""]]
        some_frozen = not all(parameter.requires_grad for parameter in model.parameters())
        return plan | {
            "strategy": draw.choice(sharded), "use_orig_params": some_frozen or draw.random() < 0.5,
            "units": [{"modules": u, "numel": n} for u, n in zip(units, _numels(model, units))],
            "prefetch": {"backward": draw.choice(["BACKWARD_PRE", "BACKWARD_POST", "none"]), "forward": draw.random() < 0.5,
                         "limit_all_gathers": draw.random() < 0.7}}
    units = choice.grouped(choice.units()) + [[""]]
    usual = draw.choice([True, False, "some"])
    reshards = [True, False, *([2] if world // replicate == 4 else [])]
    return plan | {
        "strategy": "HYBRID_SHARD" if hybrid else "FULL_SHARD", "use_orig_params": True,
        "units": [{"modules": u, "numel": n, "reshard_after_forward": draw.choice(reshards) if usual == "some" else usual}
                  for u, n in zip(units, _numels(model, units))],
        "prefetch": choice.prefetch_lists(units)}


def features(plan: dict) -> set[str]:
    """What is remarkable about a plan, to see that all of it occurs."""
    found = {plan["runtime"], plan["strategy"], f"checkpoints {plan['activation_checkpointing']['placement']}"
             if plan["activation_checkpointing"]["mode"] != "none" else "no checkpoints"}
    for name in ("param_dtype", "reduce_dtype", "no_sync"):
        found |= {name} if plan[name] else set()
    if plan["runtime"] == "fsdp1":
        prefetch = plan["prefetch"]
        return found | {prefetch["backward"], f"use_orig_params {plan['use_orig_params']}",
                        *(["forward prefetch"] if prefetch["forward"] else [])}
    found |= {f"reshard {unit['reshard_after_forward']}" for unit in plan["units"]}
    found |= {"mixed reshard"} if len({repr(unit["reshard_after_forward"]) for unit in plan["units"]}) > 1 else set()
    found |= {"groups"} if any(len(unit["modules"]) > 1 for unit in plan["units"]) else set()
    return found | {f"{direction} lists" for direction in ("forward", "backward") if plan["prefetch"][direction]}


class _Choice:
    def __init__(self, model: nn.Module, plain: fsdplan.Description, blocks: list[str], draw: random.Random) -> None:
        self._model, self._blocks, self._draw = model, blocks, draw
        self._calls = plain.tree["forward_order"]
        self._flow = {row["call"]: set(row["from"]) for row in plain.tree["dataflow"]}
        self._order = post_order(model)

    def units(self) -> list[str]:
        """Children before parents."""
        draw = self._draw
        chosen = {path for path in self._blocks if draw.random() < 0.8}
        inner = [name for block in self._blocks for name in self._children(block) if not self._is_added_to(name, block)]
        if draw.random() < 0.5:
            chosen |= {path for path in inner if draw.random() < 0.3}
        if draw.random() < 0.5:
            chosen |= {path for path in self._after_blocks() if draw.random() < 0.5}
        possible = self._possible()
        return [path for path in self._order if path in chosen & possible]

    def grouped(self, paths: list[str]) -> list[list[str]]:
        """Joins some neighbours that have one parent, and no unit in them."""
        units: list[list[str]] = []
        for path in paths:
            joins = units and self._parent(units[-1][0]) == self._parent(path) and self._draw.random() < 0.4
            inside = any(self._inside(other, path) for unit in units for other in unit)
            around = units and any(self._inside(other, p) for p in units[-1] for unit in units[:-1] for other in unit)
            if joins and not inside and not around:
                units[-1].append(path)
            else:
                units.append([path])
        return units

    def checkpointing(self) -> dict:
        modules = [path for path in self._blocks if self._draw.random() < 0.7]
        if not modules or self._draw.random() < 0.4:
            return {"mode": "none", "modules": [], "placement": "inside"}
        own = all(is_checkpointing_layer(self._model.get_submodule(path)) for path in modules)
        placement = self._draw.choice(["inside", "outside", *(["forward"] if own else [])])
        return {"mode": "modules", "modules": modules, "placement": placement}

    def prefetch_lists(self, units: list[list[str]]) -> dict:
        first_call = {path: i for i, path in reversed(list(enumerate(self._calls)))}
        order = sorted((unit[0] for unit in units if unit != [""]), key=lambda path: first_call[path])
        forward, backward = [], []
        if self._draw.random() < 0.5:
            forward = self._lists([*self._draw.choice([[""], []]), *order])
        if self._draw.random() < 0.5:
            backward = self._lists(order[::-1])
        return {"forward": forward, "backward": backward}

    def _lists(self, order: list[str]) -> list:
        """Each unit gathers up to two of those after it early, or none."""
        rows = []
        for i, path in enumerate(order):
            targets = [target for target in order[i + 1:i + 3] if self._draw.random() < 0.7]
            rows += [[path, targets]] if targets else []
        return rows

    def _after_blocks(self) -> list[str]:
        """Heads and norms. Those in front, such as embeddings, models ask for their dtype before they call them, and give
        them tensors whose shape alone they read."""
        last = max(i for i, path in enumerate(self._calls) if path in self._blocks)
        return [path for path in dict.fromkeys(self._calls[last:]) if not any(self._inside(path, b) for b in self._blocks)]

    def _possible(self) -> set[str]:
        counts = collections.Counter(self._calls)
        slots = collections.Counter(id(module) for _, module in self._model.named_modules(remove_duplicate=False))
        owners: dict[int, set[str]] = collections.defaultdict(set)
        for name, parameter in self._model.named_parameters(remove_duplicate=False):
            owners[id(parameter)].add(name)

        def alone(path: str) -> bool:
            module = self._model.get_submodule(path)
            names = [owners[id(p)] for p in module.parameters()]
            return bool(names) and slots[id(module)] == 1 and all(self._inside(n, path) for group in names for n in group)

        return {path for path in self._order if counts[path] == 1 and alone(path)}

    def _children(self, block: str) -> list[str]:
        return [f"{block}.{name}" for name, _ in self._model.get_submodule(block).named_children()]

    def _is_added_to(self, child: str, block: str) -> bool:
        """Whether the block adds its own input to what this child returns, and nothing else computes behind the child.

        The calls of leaves, which is all that a description has, look the same when the block returns the child's tensor as
        it is; FSDP1's hooks then run in another order, and such a unit is predicted wrongly.
        """
        inside = {i for i, path in enumerate(self._calls) if self._inside(path, block)}
        given = set().union(*(self._flow[call] for call in inside & set(self._flow))) - inside
        readers = [sources for call, sources in self._flow.items() if call not in inside and sources & inside]
        results = set().union(*readers) & inside
        only = len(results) == 1 and all(sources & given for sources in readers)
        return only and all(self._inside(self._calls[result], child) for result in results)

    @staticmethod
    def _inside(path: str, outer: str) -> bool:
        return path == outer or path.startswith(outer + ".")

    @staticmethod
    def _parent(path: str) -> str:
        return path.rpartition(".")[0]


def _numels(model: nn.Module, units: list[list[str]]) -> list[int]:
    """A unit takes what those before it have left."""
    taken: set[int] = set()
    numels = []
    for paths in units:
        own = {id(p): p.numel() for path in paths for p in model.get_submodule(path).parameters() if id(p) not in taken}
        taken |= set(own)
        numels.append(sum(own.values()))
    return numels
