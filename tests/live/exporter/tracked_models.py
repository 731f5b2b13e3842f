"""The models of the recordings of FSDPMemTracker (tests/golden/runtime/tracker_*.json), as they compute under FSDP2.

A unit is a block. An export is called after the model, the dtype that it computes in and, where a recording gives them, the sizes of its batch.
"""
import act_models
import torch
import zoo
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

SMALL = ("mlp conv reused unused branchy nnt llama llama_tied llama_lora llama_frozen gpt2 t5 mixtral vit albert bert qwen2 "
         "gemma2 gpt_neox whisper").split()
LARGE = [name for name in act_models.SIZES if not name.endswith("-tiny")]
WITHOUT_KERNEL = {("mixtral", "f32")}  # experts as one product: fake tensors have it in bfloat16 only
BATCH, SEQUENCE = 1, 2048


def all_of_them():
    """(name, model, sample) one after another."""
    for dtype in act_models.DTYPES:
        for kind in SMALL:
            if (kind, dtype) not in WITHOUT_KERNEL:
                model, args, kwargs = zoo_model(kind)
                yield f"{kind}@{dtype}", under_fsdp2(model, act_models.DTYPES[dtype]), (args, kwargs)
    for kind in LARGE:
        with FakeTensorMode(allow_non_fake_inputs=True):
            model, kwargs = act_models.build(kind, dtype="f32", batch=BATCH, seq=SEQUENCE)
            yield f"{kind}@bf16_batch{BATCH}_seq{SEQUENCE}", under_fsdp2(model, torch.bfloat16), ((), kwargs)


def zoo_model(kind):
    made = getattr(zoo, kind)()
    if len(made) == 3:
        return made
    model, sample = made[0], made[1]()
    return model, sample if isinstance(sample, tuple) else (sample,), {}


def under_fsdp2(model, dtype):
    """What of FSDP2 changes the model's own operators: the dtype of a MixedPrecisionPolicy, and the borders of units."""
    for block in blocks(model):
        block.register_forward_pre_hook(enter_unit, with_kwargs=True)
    if dtype != torch.float32:
        compute_in(model, dtype)
    return model


def blocks(module):
    for child in module.children():
        yield from child if isinstance(child, nn.ModuleList) else blocks(child)


class UnitInputs(torch.autograd.Function):
    """Like FSDP2's RegisterPostBackwardFunction: gradients of what units share are summed within each unit first."""

    @staticmethod
    def forward(_, *inputs):
        return inputs

    @staticmethod
    def backward(_, *gradients):
        return gradients


def enter_unit(_module, args, kwargs):
    leaves, spec = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if places:
        for i, tensor in zip(places, UnitInputs.apply(*(leaves[i] for i in places))):
            leaves[i] = tensor
    return tree_unflatten(leaves, spec)


def compute_in(model, dtype):
    """Parameters in this dtype; the root unit also casts what it is given."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    forward = model.forward

    def cast(value):
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    model.forward = lambda *args, **kwargs: forward(*tree_map(cast, args), **tree_map(cast, kwargs))
