"""Writes the inputs of tests/hostile as seeds of a fuzzer.

usage: hostile_seeds.py checkpoint|stored_checkpoint|module_tree|hf_config|log|diff FOLDER
"""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "hostile"))
import comparisons  # noqa: E402
import gen  # noqa: E402
import stored_checkpoints  # noqa: E402

# The first byte of a seed of checkpoint_fuzz says what the others are.
FILE, HEADER, HEADER_WITH_CONFIG, INDEX = (bytes([i]) for i in range(4))


def checkpoint(folder):
    for path in sorted(folder.glob("st_*.safetensors")):
        content = path.read_bytes()
        yield FILE + content
        yield HEADER + content[8:8 + int.from_bytes(content[:8], "little")]
    names = ["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight", "norm.weight", "a..b"]
    header = {n: gen.t("BF16", [10, 4], 80 * i, 80 * i + 80) for i, n in enumerate(names)}
    yield HEADER_WITH_CONFIG + json.dumps(header).encode()
    yield HEADER + json.dumps(header).encode()
    for weight_map in ({"x": "a", "y.0": "b"}, {"x": "a"}, {"x": "../a"}, {"x": "c"}, {}):
        yield INDEX + json.dumps({"metadata": {"total_size": 6}, "weight_map": weight_map}).encode()


def module_tree(folder):
    return [path.read_bytes() for path in sorted(folder.glob("tree_*.json"))]


def hf_config(folder):
    return [path.read_bytes() for path in sorted(folder.glob("cfg_*/config.json"))]


LARGEST_SEED = 4096  # a mutation of more bytes tells less


def compared(folder, pattern):
    comparisons.make(folder)
    contents = [path.read_bytes() for path in sorted(folder.glob(pattern))]
    return [content for content in contents if len(content) <= LARGEST_SEED]


def stored_checkpoint(_):
    return [seed for seed in stored_checkpoints.seeds() if len(seed) <= LARGEST_SEED]


def log(folder):
    return compared(folder, "comparisons_log_*") + compared(folder, "comparisons_lines_*")


def diff(folder):
    results = compared(folder, "comparisons_*.json")
    return [before + b"\0" + after for before, after in zip(results, results[1:])]


SEEDS = {"checkpoint": checkpoint, "stored_checkpoint": stored_checkpoint, "module_tree": module_tree,
         "hf_config": hf_config, "log": log, "diff": diff}


def main(kind, out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        gen.OUT = folder
        gen.main()
        for i, seed in enumerate(SEEDS[kind](pathlib.Path(folder))):
            (out / f"hostile-{i:03}").write_bytes(seed)


if __name__ == "__main__":
    main(*sys.argv[1:])
