#!/usr/bin/env python3
"""Makes the exports in tests/golden/exports: the models of the recordings, tiny ones, and steps of a special kind.

Twice the same bytes with the same versions of torch and transformers. Needs torch and transformers of requirements.txt.

usage: make_exports.py [FOLDER]
"""
import json
import os
import pathlib
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "exporter"), str(HERE / "recorder"), str(HERE.parents[1] / "tools" / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import act_models  # noqa: E402
import steps  # noqa: E402
import torch  # noqa: E402
import tracked_models  # noqa: E402
from replay import replay  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from fsdplan.exporter import operator_tree  # noqa: E402
from fsdplan.files import write_tree  # noqa: E402

TINY = "llama gpt2 bert t5 vit".split()
STEPS = ("plain checkpointed checkpointed_reentrant custom_function in_place two_heads convolution tied views autocast").split()


def documents():
    for path in sorted((HERE.parent / "golden" / "runtime").glob("act_*.json")):
        case = json.loads(path.read_text())["case"]
        if not case.get("fake_mask") and "modules" not in case.get("ac", {}):
            name = case.pop("name")
            yield name, operator_tree(*act_models.build(case.pop("model"), **case), name=name)
    for kind in TINY:
        yield f"tiny_{kind}", operator_tree(*act_models.build(f"{kind}-tiny", seq=16, batch=2), name=f"tiny_{kind}")
    checkpointed = act_models.build("llama-tiny", seq=16, batch=2, ac={"mode": "hf"})
    yield "tiny_llama_ac", operator_tree(*checkpointed, name="tiny_llama_ac")
    for kind in STEPS:
        yield f"step_{kind}", operator_tree(*getattr(steps, kind)(), name=f"step_{kind}")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "golden" / "exports"
    folder.mkdir(parents=True, exist_ok=True)
    expected, tracked = {}, 0
    with FakeTensorMode(allow_non_fake_inputs=True):
        for name, document in documents():
            write_tree(folder / f"{name}.json", document)
            in_place = replay(document["operators"], in_place=True)["backward_peak_bytes"]
            expected[name] = replay(document["operators"]) | {"backward_peak_in_place_bytes": in_place}
    for name, model, sample in tracked_models.all_of_them():
        write_tree(folder / f"{name}.json.gz", operator_tree(model, sample, name=name))
        tracked += 1
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in expected.items())
    (folder / "expected.json").write_text("{\n" + lines + "\n}\n")
    print(f"{len(expected) + tracked} exports in {folder}, with torch {torch.__version__}")


if __name__ == "__main__":
    main()
