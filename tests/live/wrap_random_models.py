#!/usr/bin/env python3
"""Random models through the real FSDP constructor and fully_shard, replayed by `fsdplan verify`.

Records what PyTorch does with random trees (shared modules, ties, containers, mixed dtypes, frozen, scalar, empty and
ignored parameters, batch norms) under random policies, over a fake process group with tensors on the meta device, in
the format of tests/golden/wrap, and lets the program replay it. Needs torch.

usage: wrap_random_models.py --fsdplan PROGRAM [--models 40] [--seed 1]
"""
import argparse
import contextlib
import copy
import functools
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import types
import warnings

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy, fully_shard
from torch.distributed.fsdp import wrap
from torch.testing._internal.distributed.fake_pg import FakeStore

warnings.filterwarnings("ignore")

LINEAR, LAYER_NORM = "torch.nn.modules.linear.Linear", "torch.nn.modules.normalization.LayerNorm"
SEQUENTIAL, MODULE_LIST = "torch.nn.modules.container.Sequential", "torch.nn.modules.container.ModuleList"
BATCH_NORM, MODULE = "torch.nn.modules.batchnorm._BatchNorm", "torch.nn.modules.module.Module"
LONG_LIST = 12  # longer lists of names are recorded as count and digest

# What PyTorch says, and how a recording says it.
REASONS = [
    (r"is already wrapped by",
     "a shared module was reached a second time after something inside it had been wrapped"),
    (r"both parameters with requires_grad=True and False",
     "frozen and trainable parameters in one unit while use_orig_params is off (checked before wrapping)"),
    (r"uniform `requires_grad`",
     "frozen and trainable parameters in one flat parameter while use_orig_params is off"),
    (r"uniform dtype", "parameters of different dtypes in one flat parameter"),
    (r"integer dtype", "the first parameter of a unit is not floating point"),
    (r"scalar parameters", "a unit manages a zero-dimensional parameter"),
    (r"should return\s+False/True or a kwarg dict", "the lambda of a CustomPolicy returned neither a bool nor a dict"),
    (r"ninitialized", "a lazy module's parameter has no shape yet"),
    (r"can only be applied to a", "fully_shard was applied twice to one module"),
    (r"does not support containers", "fully_shard was called on a container without a forward"),
    (r"Invariant encountered", "a parameter of this group is already a sharded DTensor of an earlier group "
                               "(the mesh has no dimension names)"),
    (r"already managed by another FSDP group", "one original parameter ended up in two groups"),
    (r"requires a single root module", "the outermost fully_shard call covers several modules"),
    (r"unsharded_start_idx", "every parameter of a unit has zero elements, so its flat parameter would be empty"),
]


class Block(nn.Module):
    pass


class OtherBlock(Block):
    pass


class RandomModel:
    """Builds one model from a seed."""

    def __init__(self, seed):
        self.random = r = random.Random(seed)
        self.has = {name: r.random() < share for name, share in dict(
            shared=.3, tied=.5, dtypes=.2, frozen=.35, scalar=.08, empty=.15, integer=.08, lazy=.04).items()}
        self.modules, self.parameters = [], []

    def chance(self, share):
        return self.random.random() < share

    def register(self, module, name):
        r = self.random
        if self.has["tied"] and self.parameters and self.chance(.2):
            module.register_parameter(name, r.choice(self.parameters))
            return
        shape = [r.randint(1, 9) for _ in range(r.randint(1, 3))]
        dtype, trainable = torch.float32, not (self.has["frozen"] and self.chance(.4))
        if self.has["scalar"] and self.chance(.1):
            shape = []
        elif self.has["empty"] and self.chance(.15):
            shape = [0, 3]
        if self.has["dtypes"] and self.chance(.3):
            dtype = r.choice([torch.bfloat16, torch.float64, torch.float16])
        elif self.has["integer"] and self.chance(.15):
            dtype, trainable = torch.int32, False
        parameter = nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=trainable)
        self.parameters.append(parameter)
        module.register_parameter(name, parameter)

    def leaf(self):
        r = self.random
        kind = r.random()
        if kind < .45:
            module = nn.Linear(r.randint(1, 8), r.randint(1, 8), bias=self.chance(.5))
            if self.has["frozen"] and self.chance(.3):
                module.requires_grad_(False)
            self.parameters.extend(module.parameters())
            return module
        if kind < .55:
            return nn.LayerNorm(r.randint(1, 8))
        if kind < .62:
            return r.choice([nn.BatchNorm1d, nn.BatchNorm2d])(r.randint(1, 8), affine=self.chance(.8))
        if kind < .67:
            return nn.MultiheadAttention(4, 2)
        if kind < .72 and self.has["lazy"]:
            return nn.LazyLinear(3)
        if kind < .8:
            return nn.ReLU()
        module = r.choice([Block, OtherBlock])()
        for i in range(r.randint(0, 3)):
            self.register(module, f"p{i}")
        return module

    def subtree(self, depth):
        r = self.random
        if self.has["shared"] and self.modules and self.chance(.2):
            return r.choice(self.modules)
        if depth == 0:
            module = self.leaf()
        else:
            children = [self.subtree(depth - 1 if self.chance(.8) else 0) for _ in range(r.randint(0, 4))]
            kind = r.random()
            if kind < .25:
                module = nn.Sequential(*children)
            elif kind < .45:
                module = nn.ModuleList(children)
            elif kind < .55:
                module = nn.ModuleDict({f"k{i}": c for i, c in enumerate(children)})
            else:
                module = r.choice([Block, OtherBlock])()
                slots = [("c", i) for i in range(len(children))] + [("q", i) for i in range(r.randint(0, 2))]
                r.shuffle(slots)
                for what, i in slots:
                    if what == "c":
                        module.add_module(f"c{i}", children[i])
                    else:
                        self.register(module, f"q{i}")
        self.modules.append(module)
        return module

    def build(self):
        root = Block()
        for i in range(self.random.randint(1, 5)):
            root.add_module(f"t{i}", self.subtree(self.random.randint(0, 3)))
        if self.chance(.5):
            self.register(root, "rp")
        return root


def full_name(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


def module_tree(model, name):
    classes, tensors = {}, {}
    order = list(model.modules())
    ids = {m: i for i, m in enumerate(order)}

    def tensor_id(t):
        return tensors.setdefault(id(t), (len(tensors), t))[0]

    def row(t, i):
        lazy = isinstance(t, nn.parameter.UninitializedTensorMixin)
        out = {"id": i, "shape": None if lazy else list(t.shape), "dtype": str(t.dtype).removeprefix("torch."),
               "requires_grad": bool(t.requires_grad)}
        return out | ({"uninitialized": True} if lazy else {})

    modules = [{
        "id": ids[m], "class": classes.setdefault(type(m), len(classes)),
        "parameters": {k: tensor_id(p) for k, p in m._parameters.items() if p is not None},
        "children": {k: ids[c] for k, c in m._modules.items() if c is not None},
    } for m in order]
    return {
        "format": "fsdplan.module-tree", "version": 1, "model": name, "source": "random",
        "classes": [{"name": full_name(c), "bases": [full_name(b) for b in c.__mro__[1:-1]]} for c in classes],
        "modules": modules, "tensors": [row(t, i) for i, t in tensors.values()], "root": 0,
    }


def find_class(model, name):
    for m in model.modules():
        for cls in type(m).__mro__:
            if full_name(cls) == name:
                return cls
    module, _, cls = name.rpartition(".")
    return getattr(sys.modules[module], cls)


def make_policy(model, policy, arguments):
    def classes(key):
        return {find_class(model, c) for c in arguments[key]}

    if policy == "size_based":
        keywords = {k: classes(k) for k in ("force_leaf_modules", "exclude_wrap_modules") if k in arguments}
        return functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=arguments["min_num_params"],
                                 **keywords)
    if policy == "transformer":
        return functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls=classes(policy_key(policy)))
    if policy == "module_wrap":
        return wrap.ModuleWrapPolicy(classes(policy_key(policy)))
    if policy == "always":
        return wrap.always_wrap_policy
    if policy == "lambda":
        chosen = {model.get_submodule(n) for n in arguments["modules"]}
        return functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=lambda m: m in chosen)
    if policy == "or":
        parts = [make_policy(model, p["policy"], p["arguments"]) for p in arguments["policies"]]
        return functools.partial(wrap._or_policy, policies=parts)
    table = []
    for selector, value in arguments["rules"]:
        if isinstance(value, dict) and "sharding_strategy" in value:
            value = {"sharding_strategy": getattr(ShardingStrategy, value["sharding_strategy"])}
        if selector.startswith("fqn:"):
            module = model.get_submodule(selector[4:])
            table.append((lambda m, module=module: m is module, value))
        else:
            cls = find_class(model, selector)
            table.append((lambda m, cls=cls: isinstance(m, cls), value))
    return wrap.CustomPolicy(lambda m: next((value for hit, value in table if hit(m)), False))


def policy_key(policy):
    return "transformer_layer_cls" if policy == "transformer" else "module_classes"


def random_case(r, model):
    names = [n for n, _ in model.named_modules() if n]
    parameters = [n for n, _ in model.named_parameters()]
    world = r.choice([8, 8, 2, 3, 5])
    settings = {"use_orig_params": r.random() < .4, "world_size": world, "rank": r.randrange(world)}
    if r.random() < .3:
        settings["mixed_precision"] = {
            "param_dtype": "bfloat16",
            "module_classes_to_ignore": r.choice([[BATCH_NORM], [], [BATCH_NORM, LAYER_NORM], [LINEAR]])}
    if names and r.random() < .25:
        settings["ignored_modules"] = r.sample(names, min(len(names), 2))
    elif parameters and r.random() < .25:
        settings["ignored_states"] = r.sample(parameters, min(len(parameters), 2))
    size = {"min_num_params": r.choice([0, 1, 5, 10, 20, 40, 80, 150, 12.5])}
    kind = r.random()
    if kind < .4 or not names:
        return "size_based", size, settings
    if kind < .5:
        return "size_based", size | {"force_leaf_modules": r.choice([[], [LINEAR], [SEQUENTIAL]]),
                                     "exclude_wrap_modules": r.choice([[], [MODULE_LIST]])}, settings
    if kind < .7:
        policy = r.choice(["module_wrap", "transformer"])
        return policy, {policy_key(policy): r.sample([LINEAR, SEQUENTIAL, MODULE_LIST, LAYER_NORM, MODULE], 2)}, settings
    if kind < .8:
        return "lambda", {"modules": r.sample(names, min(len(names), 3))}, settings
    if kind < .9:
        values = [True, False, {"sharding_strategy": "NO_SHARD"}, {"sharding_strategy": "SHARD_GRAD_OP"}, {}, None]
        return "custom", {"rules": [["fqn:" + r.choice(names), r.choice(values)], [LINEAR, True]]}, settings
    if kind < .95:
        parts = [{"policy": "size_based", "arguments": size},
                 {"policy": "transformer", "arguments": {"transformer_layer_cls": [LINEAR]}}]
        return "or", {"policies": parts}, settings
    return "always", {}, settings


def clean(name):
    return ".".join(p for p in name.split(".") if p != "_fsdp_wrapped_module")


def join(prefix, name):
    return f"{prefix}.{name}" if prefix and name else prefix or name


def unit_row(module, cls, numel, names, extra=None):
    row = {"module": module, "class": full_name(cls), "numel": numel}
    if len(names) <= LONG_LIST:
        row["parameters"] = names
    else:
        row |= {"parameter_count": len(names), "sha256": hashlib.sha256("\n".join(names).encode()).hexdigest()}
    return row | (extra or {})


@contextlib.contextmanager
def fake_group(world, rank):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
            yield
    finally:
        dist.destroy_process_group()


def construct(model, policy, arguments, settings):
    keywords = {"use_orig_params": settings["use_orig_params"]}
    if "mixed_precision" in settings:
        kept = tuple(find_class(model, c) for c in settings["mixed_precision"]["module_classes_to_ignore"])
        keywords["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, _module_classes_to_ignore=kept)
    if "ignored_modules" in settings:
        keywords["ignored_modules"] = [model.get_submodule(n) for n in settings["ignored_modules"]]
    if "ignored_states" in settings:
        keywords["ignored_states"] = [model.get_parameter(n) for n in settings["ignored_states"]]
    root = FSDP(model, device_id=torch.device("meta"), auto_wrap_policy=make_policy(model, policy, arguments),
                param_init_fn=lambda m: None, **keywords)
    names = {}
    for name, module in root.named_modules():
        names.setdefault(module, clean(name))
    rows, flat = [], []
    for unit in FSDP.fsdp_modules(root):
        handle, extra = unit._handle, {}
        if unit.sharding_strategy is not ShardingStrategy.FULL_SHARD:
            extra["sharding_strategy"] = unit.sharding_strategy.name
        if "mixed_precision" in settings and unit.mixed_precision.param_dtype is None:
            extra["mixed_precision"] = None
        extra = {"kwargs": extra} if extra else {}
        path = names[unit]
        if handle is None:
            rows.append(unit_row(path, type(unit.module), 0, [], extra))
            flat.append(None)
            continue
        p = handle.flat_param
        rows.append(unit_row(path, type(unit.module), sum(p._numels), [join(path, clean(x)) for x in p._fqns], extra))
        flat.append([int(p._unpadded_unsharded_size.numel()), int(p.numel())])
    return rows, flat


def random_calls(r, model):
    names = [n for n, _ in model.named_modules() if n]
    if not names:
        return [""]
    calls = [r.choice(names) for _ in range(r.randint(1, 4))]
    calls.sort(key=lambda c: -c.count("."))
    if r.random() < .3:
        calls.insert(0, r.sample(names, min(len(names), 2)))
    return calls + ([""] if r.random() < .9 else [])


def shard(model, calls):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    names = {m: n for n, m in model.named_modules()}
    rows, states = [], []
    for call in calls:
        given = [model.get_submodule(n) for n in call] if isinstance(call, list) else model.get_submodule(call)
        fully_shard(given, mesh=mesh)
        modules = given if isinstance(given, list) else [given]
        state = next(s for s in (fully_shard.state(m) for m in modules) if s is not None)
        states.append(state)
        managed = [p for g in state._fsdp_param_groups for p in g.fsdp_params]
        paths = [names[m] for m in state._modules]
        rows.append(unit_row(paths[0], type(state._modules[0]).__mro__[2], sum(p._orig_size.numel() for p in managed),
                             [join(names[p._module_info.module], p._module_info.param_name) for p in managed],
                             {"modules": paths} if len(paths) > 1 else None))
    try:
        states[-1]._lazy_init()
    except Exception as error:  # noqa: BLE001 - what the first forward refuses is the recording
        if "meta device" not in str(error):
            return rows, error_row(error)
    return rows, None


def error_row(error):
    text = str(error)
    for pattern, reason in REASONS:
        if re.search(pattern, text, re.S):
            return {"type": type(error).__name__, "reason": reason}
    raise error


def record(seed, cases):
    with torch.device("meta"):
        model = RandomModel(seed).build()
    tree = module_tree(model, f"random-{seed}")
    r = random.Random(seed + 1_000_000)
    rows, index, done = [], {}, []

    def indices(units):
        return [index.setdefault(json.dumps(u, sort_keys=True), (len(rows), rows.append(u)))[0] for u in units]

    for _ in range(cases):
        policy, arguments, settings = random_case(r, model)
        case = {"policy": policy, "arguments": arguments, "fsdp": settings, "source": "constructor"}
        try:
            with fake_group(settings["world_size"], settings["rank"]):
                units, case["flat"] = construct(copy.deepcopy(model), policy, arguments, settings)
            case["expected"] = indices(units)
        except Exception as error:  # noqa: BLE001 - an error is a result
            case.pop("flat", None)
            case["error"] = error_row(error)
        done.append(case)
    lazy = any(isinstance(p, nn.parameter.UninitializedTensorMixin) for p in model.parameters())
    for _ in range(0 if lazy else cases // 2):
        calls = random_calls(r, model)
        case = {"policy": "fully_shard", "arguments": {"calls": calls}, "source": "fully_shard"}
        try:
            with fake_group(8, 0):
                units, late = shard(copy.deepcopy(model), calls)
            case["expected"] = indices(units)
            if late:
                case["first_forward_error"] = late
        except Exception as error:  # noqa: BLE001
            case["error"] = error_row(error)
        done.append(case)
    return tree, {"format": "fsdplan.wrap-cases", "version": 1, "model": tree["model"], "source": "random",
                  "hazards": [], "world_size": 8, "rank": 0, "size_based_intervals": [], "units": rows, "cases": done}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fsdplan", required=True)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--cases", type=int, default=24, help="FSDP1 cases a model; half as many of fully_shard")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.meta = types.SimpleNamespace(current_device=lambda: "meta", is_available=lambda: True)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.models):
            tree, units = record(seed, options.cases)
            for kind, document in ("tree", tree), ("units", units):
                with open(f"{folder}/{tree['model']}.{kind}.json", "w") as f:
                    json.dump(document, f)
        return subprocess.run([options.fsdplan, "verify", folder], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
