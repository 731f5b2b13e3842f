#!/usr/bin/env python3
"""Exports of small models of many kinds against real PyTorch: tree, activations, units and collectives in one run.

Each model is exported without memory and trained for real on the CPU. Compared are the module tree, by PyTorch and as
fsdplan reads it; every operator that allocates in a step, with the bytes alive then; and, with the export as the model of a
recording with FSDP1 and one with FSDP2, the units and each event that `fsdplan verify` replays. Needs the packages of
requirements.txt.

usage: export_real_models.py --fsdplan PROGRAM --list-tree PROGRAM [--only PATTERN] [--keep FOLDER]
"""
import argparse
import contextlib
import fnmatch
import gc
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "exporter"), str(HERE), str(HERE.parents[1] / "tools" / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import real_models  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from compare_families import first_difference, tree_listing  # noqa: E402
from real_step import difference  # noqa: E402

import fsdplan  # noqa: E402
from fsdplan.exporter import operator_tree  # noqa: E402
from fsdplan.files import write_tree  # noqa: E402
from fsdplan.training import Loop, train  # noqa: E402
from fsdplan.wrapping import Wrapping, wrap  # noqa: E402

transformers.logging.set_verbosity_error()


def made(name):
    torch.manual_seed(0)
    model, args, kwargs = getattr(real_models, name)()
    return model.train(), args, kwargs


def record(folder, name, engine):
    model, args, kwargs = made(name)
    plain = fsdplan.describe(model, args, kwargs, name=name)
    with fsdplan.fake_process_group(8):
        root = wrap(model, Wrapping(engine, wrap=real_models.UNITS[name]))
        trainable = [parameter for parameter in root.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trainable, foreach=False)
        with fsdplan.record(folder, name=f"{name}_{engine}", model=root, optimizer=optimizer, plain=plain,
                            inputs=(args, kwargs)):
            train(root, optimizer, args, kwargs, fsdplan.default_loss, Loop(iterations=3))


def export(folder, name):
    """Puts the export where the recordings look for their model, and the listing of the real one beside it."""
    model, args, kwargs = made(name)
    model(*args, **kwargs)  # what a first forward makes
    document = operator_tree(model, (args, kwargs), name=name)
    plain = fsdplan.describe(model, args, kwargs, name=name).tree
    operators = document.pop("operators")
    if document != plain | {"version": 2}:
        wrong = [key for key in document if document[key] != plain.get(key) and key != "version"]
        sys.exit(f"{name}: {', '.join(wrong)} of the export are not those of a real forward")
    document["operators"] = operators
    gc.disable()  # memory in cycles would go at some time
    if wrong := difference(document, model, args, kwargs):
        sys.exit(f"{name}: {wrong}")
    (folder / "listings").mkdir(parents=True, exist_ok=True)
    (folder / "listings" / f"{name}.json").write_text(json.dumps(tree_listing(model)))
    write_tree(folder / "models" / f"{name}.json", document)


def apart(function, *arguments):
    """In a process of its own, since a process group leaves traces. False when it fails."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join()
    return process.exitcode == 0


def same_trees(list_tree, folder, names):
    out = folder / "listings" / "fsdplan.jsonl"
    subprocess.run([list_tree, out, *(folder / "models" / f"{name}.json" for name in names)], check=True)
    same = True
    for name, line in zip(names, out.read_text().splitlines()):
        real = json.loads((folder / "listings" / f"{name}.json").read_text())
        got = json.loads(line)
        if wrong := got.get("error") or first_difference(real, got["listing"]):
            print(f"{name}: {wrong}")
            same = False
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fsdplan", required=True)
    parser.add_argument("--list-tree", required=True)
    parser.add_argument("--only", default="*", help="shell pattern on names")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the recordings instead of a temporary one")
    options = parser.parse_args()
    names = [name for name in real_models.UNITS if fnmatch.fnmatchcase(name, options.only)]
    with contextlib.ExitStack() as stack:
        folder = options.keep or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in names:
            made(name)  # before the processes start, so that each need not load the model's code again
        good = []
        for name in names:
            recorded = [apart(record, folder, name, engine) for engine in ("fsdp1", "fsdp2")]
            good += [name] if all([*recorded, apart(export, folder, name)]) else []
        sys.stdout.flush()
        same = bool(good) and same_trees(options.list_tree, folder, good)
        verified = subprocess.run([options.fsdplan, "verify", folder], check=False).returncode == 0
    print(f"{len(good)} of {len(names)} models are as exported")
    return 0 if same and verified and good == names else 1


if __name__ == "__main__":
    sys.exit(main())
