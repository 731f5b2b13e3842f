#!/usr/bin/env python3
"""Record what a language head and its loss allocate in forward and backward, request by request, on a device without storage.

    record.py --phantom BUILD > recordings.json

BUILD holds libphantom.so, a stand-in for the CUDA runtime. Triton does not run on it: kernels of liger_kernel and cut_cross_entropy write
into memory that their Python has allocated, and are left out.
"""
import importlib.util
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from request_recorder import in_child, on_phantom, requests  # noqa: E402

SIZES = {"small": (2, 96, 64, 1000), "odd": (1, 100, 128, 3001)}  # batch, sequence, width, vocabulary
CHUNKS = 4


class NoKernel:
    def __getitem__(self, grid):
        return lambda *arguments, **options: None


def without_kernels(*modules):
    for module in modules:
        for name in dir(module):
            if name.endswith("_kernel") and hasattr(getattr(module, name), "run"):
                setattr(module, name, NoKernel())


def chunked(torch, head, hidden, labels):
    # Its file alone: the package around it wants more than is needed here.
    folder = importlib.util.find_spec("torchtune").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("chunked", os.path.join(folder, "modules/loss/ce_chunked_output_loss.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loss = module.CEWithChunkedOutputLoss(CHUNKS)
    return loss([head(chunk) for chunk in hidden.chunk(CHUNKS, dim=1)], labels)


def moved(torch, labels):
    return torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous().view(-1)


def fused(torch, head, hidden, labels):
    import liger_kernel.ops.fused_linear_cross_entropy as module

    without_kernels(module)
    target = moved(torch, labels)
    return module.LigerFusedLinearCrossEntropyFunction.apply(hidden.view(-1, hidden.size(-1)), head.weight, target)[0]


def cce(torch, head, hidden, labels):
    import cut_cross_entropy.cce as module
    from cut_cross_entropy import cce_backward, cce_lse_forward, indexed_dot

    without_kernels(cce_backward, cce_lse_forward, indexed_dot)
    module.sort_logit_avg = lambda average: torch.argsort(average).to(torch.int32)
    # The host reads zeros: what a search for labels that count would give is made here.
    module._build_flat_valids = lambda targets, *_: torch.arange(targets.numel(), device="cuda", dtype=torch.int32)
    target = moved(torch, labels)
    return module.cce_linear_cross_entropy(hidden.view(-1, hidden.size(-1)), head.weight, target)


def plain(upcast):
    def loss(torch, head, hidden, labels):
        logits = head(hidden)  # the model's forward holds it
        wide = logits.float() if upcast else logits
        target = moved(torch, labels)
        return torch.nn.functional.cross_entropy(wide.view(-1, wide.size(-1)), target)

    return loss


LOSSES = {"cross-entropy": plain(True), "low-precision": plain(False), f"chunked:{CHUNKS}": chunked, "fused": fused, "cce": cce}


def record(loss, size, dtype):
    import torch

    torch.cuda.set_device(0)
    number = getattr(torch, dtype)
    batch, sequence, width, vocabulary = SIZES[size]
    head = torch.nn.Linear(width, vocabulary, bias=False, device="cuda", dtype=number)
    leaf = torch.zeros(batch, sequence, width, device="cuda", dtype=number, requires_grad=True)
    labels = torch.zeros(batch, sequence, device="cuda", dtype=torch.long)
    square = torch.zeros(8, 8, device="cuda", dtype=number, requires_grad=True)
    (square @ square).sum().backward()  # cuBLAS has its workspaces
    hidden = leaf * 1
    asked = requests(torch, lambda: LOSSES[loss](torch, head, hidden, labels).backward())
    return {"loss": loss, "dtype": dtype, "batch": batch, "sequence": sequence, "width": width, "vocabulary": vocabulary, "requests": asked}


def main():
    on_phantom(__doc__.splitlines()[0])
    import torch  # noqa: F401 before the forks

    dtypes = {"cce": ("bfloat16",)}  # it refuses float32
    rows = [in_child(record, loss, size, dtype) for loss in LOSSES for size in SIZES for dtype in dtypes.get(loss, ("bfloat16", "float32"))]
    print("[" + ",\n ".join(rows) + "]")


if __name__ == "__main__":
    main()
