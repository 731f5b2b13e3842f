"""Sizes that torch.save and safetensors' save really write, for file_bytes_test.cpp.

usage: record.py > file_bytes.json   (with the torch and safetensors of tests/live/requirements.txt)
"""

import io
import json
import math
import random

import safetensors
import safetensors.torch
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool,
          torch.float8_e4m3fn, torch.uint16, torch.complex64, torch.int8]


def items(rng):
    while True:
        dimensions = rng.randint(0, 6)
        sizes = [0, 1, 2, 3] + ([7, 300, 70000] if dimensions < 3 else [])
        shape = [rng.choice(sizes) for _ in range(dimensions)]
        dtype = rng.choice(DTYPES)
        if math.prod(shape) <= 5_000_000:
            out = io.BytesIO()
            torch.save(torch.zeros(shape, dtype=dtype), out)
            yield {"dtype": str(dtype)[6:], "shape": shape, "bytes": len(out.getvalue())}


def files(rng):
    while True:
        tensors = {}
        for _ in range(rng.randint(0, 12)):
            name = "".join(rng.choice('ab."\\é\n/0') for _ in range(rng.randint(0, 9)))
            shape = [rng.randint(0, 30) for _ in range(rng.randint(0, 3))]
            tensors[name] = torch.zeros(shape, dtype=rng.choice(DTYPES))
        metadata = rng.choice([{}, {"format": "pt"}, {"format": "pt", 'k"': "v\n\\"}])
        yield {"bytes": len(safetensors.torch.save(tensors, metadata or None)), "metadata": list(metadata.items()),
               "tensors": [{"name": n, "dtype": str(t.dtype)[6:], "shape": list(t.shape)} for n, t in tensors.items()]}


def main():
    rng = random.Random(1)
    out = {"source": f"torch {torch.__version__}, safetensors {safetensors.__version__}; written by record.py"}
    for kind, made, count in (("items", items(rng), 400), ("files", files(rng), 60)):
        out[kind] = [next(made) for _ in range(count)]
    lines = {key: ",\n  ".join(json.dumps(row) for row in out[key]) for key in ("items", "files")}
    print(f'{{"source": {json.dumps(out["source"])},\n "items": [\n  {lines["items"]}],\n "files": [\n  {lines["files"]}]}}')


main()
