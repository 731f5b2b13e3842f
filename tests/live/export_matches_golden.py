#!/usr/bin/env python3
"""The exporter of tools/python against stored recordings of activations (tests/golden/runtime/act_*.json).

The models are built at their real size; nothing is computed. Bytes and FLOPs must be equal: what each module saves that no
module before it saved, the FLOPs of each module's forward, the FLOPs of forward and backward by operator, and the bytes alive
after the forward and at the peaks of forward and backward, replayed from the rows. Needs torch and transformers of
requirements.txt.

usage: export_matches_golden.py [--golden FOLDER] [--only PATTERN] [--save FOLDER]
"""
import argparse
import collections
import fnmatch
import json
import os
import pathlib
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "exporter"), str(HERE.parents[1] / "tools" / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

from replay import broken_law, replay  # noqa: E402


def saved_by_module(document):
    """Module path -> bytes of the storages that it is the first to save."""
    operators, order = document["operators"], document["forward_order"]
    seen, result = set(), collections.Counter()
    for row in operators["forward"]:
        for storage in row.get("saved", []):
            if storage not in seen:
                seen.add(storage)
                result[order[row["call"]] if row["call"] >= 0 else ""] += operators["storages"][storage]
    return result


def flops_by_module(document):
    """Module path -> FLOPs of its forwards, with those of the modules in it."""
    result = collections.Counter()
    for row in document["operators"]["forward"]:
        path = document["forward_order"][row["call"]] if row["call"] >= 0 else ""
        while path:
            result[path] += row.get("flops", 0)
            path = path.rpartition(".")[0]
        result[""] += row.get("flops", 0)
    return result


def flops_by_operator(operators, phase):
    result = collections.Counter()
    for row in operators[phase]:
        if row.get("flops"):
            result[operators["names"][row["op"]].split(".")[1]] += row["flops"]
    return dict(result)


def computed(document):
    operators = document["operators"]
    saved = {s for row in operators["forward"] for s in row.get("saved", [])}
    return {"saved_new_bytes": sum(operators["storages"][s] for s in saved), **replay(operators),
            "flops_forward": flops_by_operator(operators, "forward"),
            "flops_backward": flops_by_operator(operators, "backward"),
            "saved by": dict(saved_by_module(document)), "flops of": dict(flops_by_module(document))}


def recorded(golden):
    keys = ("saved_new_bytes", "forward_peak_bytes", "after_forward_bytes", "backward_peak_bytes", "after_backward_bytes",
            "flops_forward", "flops_backward")
    saved, flops = collections.Counter(), {}
    for row in [*golden["modules"], {"fqn": "", "saved": golden["outside_modules_saved"], "flops": None}]:
        if row["fqn"] in flops and row["flops"] is not None:
            continue  # a further call of a module: the row repeats all that its calls save
        saved[row["fqn"]] += sum(entry[3] for entry in row["saved"] if entry[0] == "new")
        flops.setdefault(row["fqn"], row["flops"] or 0)
    return {**{key: golden[key] for key in keys}, "saved by": dict(saved), "flops of": flops}


def per_layer(saved):
    """What a checkpoint keeps belongs to no operator: an export lists it at one of those that need it."""
    result = collections.Counter()
    for path, size in saved.items():
        result[".".join(path.split(".")[:3])] += size
    return result


def differences(new, old, checkpointed):
    for key, value in old.items():
        if key in ("saved by", "flops of"):
            a, b = new[key], value
            if key == "saved by" and checkpointed:
                a, b = per_layer(a), per_layer(b)
            called = old["flops of"].keys()  # lists of modules are not
            for path in sorted(path for path in {*a, *b} if path in called):
                if (x := a.get(path, 0)) != (y := b.get(path, 0)):
                    yield f"{key} {path or 'the model'}: {x} instead of {y}"
        elif new[key] != value:
            yield f"{key}: {new[key]} instead of {value}"


def exported(case):
    import act_models
    from fsdplan.exporter import operator_tree
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        model, batch = act_models.build(case["model"], **{k: v for k, v in case.items() if k not in ("model", "name", "kind")})
    return operator_tree(model, batch, name=case["model"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--golden", type=pathlib.Path, default=HERE.parent / "golden" / "runtime")
    parser.add_argument("--only", default="*", help="shell pattern on names")
    parser.add_argument("--save", type=pathlib.Path, help="keep the exports there")
    options = parser.parse_args()
    if not options.golden.is_dir():
        print(f"no recordings in {options.golden}")
        return 77
    bad = count = 0
    for path in sorted(options.golden.glob("act_*.json")):
        golden = json.loads(path.read_text())
        case = golden["case"]
        if not fnmatch.fnmatchcase(path.stem, options.only) or case.get("fake_mask") or "modules" in case.get("ac", {}):
            continue  # masks that training does not have, and wrappers that an export refuses
        count += 1
        document = exported(case)
        if options.save:
            from fsdplan.files import write_tree
            write_tree(options.save / f"{path.stem}.json", document)
        problems = list(differences(computed(document), recorded(golden), "ac" in case))
        problems += filter(None, [broken_law(document)])
        bad += bool(problems)
        print(f"{path.stem}: {'differs' if problems else 'equal'}", *problems, sep="\n  ", flush=True)
    print(f"{count - bad} of {count} recordings are reproduced")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())
