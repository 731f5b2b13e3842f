#!/usr/bin/env python3
"""The recorder of tools/python, through its command line, against stored recordings of the same models and settings.

Every event, collective and byte count must be equal; so must the units, the module tree and the settings that the recorder
reads off the wrapped model. Needs torch and transformers of requirements.txt.

usage: record_matches_golden.py [--golden FOLDER] [--only PATTERN] [--all]
"""
import argparse
import fnmatch
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "recorder"), str(HERE.parents[1] / "tools" / "python")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A few of each kind; --all takes every recording with the fake process group.
USUAL = """
    fsdp1_llama_full fsdp1_llama_mp_full fsdp1_llama_no_sync_hybrid fsdp1_llama_clip fsdp1_llama_ac_inside
    fsdp1_llama_forward_prefetch fsdp1_llama_mixed_strategy fsdp1_unused_full fsdp1_t5_flat fsdp1_mixtral_full
    fsdp2_llama_default fsdp2_llama_mp fsdp2_llama_hsdp_no_all_reduce fsdp2_llama_hsdp_clip fsdp2_llama_ac_outside
    fsdp2_llama_reshard_2 fsdp2_llama_grouped fsdp2_llama_lora_mp fsdp2_llama_no_sync_keep fsdp2_unused_rs
    fsdp2_t5_mp fsdp2_mixtral_default
""".split()

DEFAULTS = {"strategy": "FULL_SHARD", "backward_prefetch": "BACKWARD_PRE", "forward_prefetch": False,
            "limit_all_gathers": True, "use_orig_params": True, "mesh": None, "mp": {}, "iters": 3,
            "accum": {"n": 1, "mode": "sync"}, "clip": False, "optim": "adamw", "cpu_offload": False, "ac": None}


def arguments(case):
    """The command line for the settings of a recording."""
    line = ["record", "--import", f"zoo:{case['model']}", "--name", case["name"], "--engine", case["engine"],
            "--world", str(case["world"]), "--iterations", str(case.get("iters", 3))]

    def option(name, key, show=str):
        if key in case:
            line.extend([name, show(case[key])])

    def flag(name, on):
        line.extend([name] if on else [])

    def several(name, key, show):
        for item in case.get(key, []):
            line.extend([name, show(item)])

    def lower(value):
        return str(value).lower()

    if case["wrap"]:
        line.extend(["--wrap", *case["wrap"]])
    option("--mesh", "mesh", lambda m: "x".join(map(str, m)))
    option("--dtype", "dtype")
    option("--optimizer", "optim")
    option("--strategy", "strategy")
    several("--unit-strategy", "strategy_by_unit", lambda u: f"{u}={case['strategy_by_unit'][u]}")
    flag("--flat-parameters", not case.get("use_orig_params", True))
    option("--backward-prefetch", "backward_prefetch",
           lambda b: {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post", None: "none"}[b])
    flag("--forward-prefetch", case.get("forward_prefetch"))
    flag("--no-limit-all-gathers", not case.get("limit_all_gathers", True))
    flag("--debug-detail", case.get("debug_detail"))
    option("--reshard-after-forward", "reshard_after_forward", lower)
    several("--unit-reshard", "reshard_by_unit", lambda u: f"{u}={lower(case['reshard_by_unit'][u])}")
    option("--root-reshard", "root_reshard_after_forward", lower)
    several("--group", "grouped", ",".join)
    option("--forward-prefetch", "forward_prefetch_n")
    option("--backward-prefetch", "backward_prefetch_n")
    flag("--root-forward-prefetch", case.get("root_forward_prefetch"))
    flag("--unshard-async", case.get("unshard_async_op"))
    option("--gradient-divide-factor", "gradient_divide_factor")
    flag("--force-sum", case.get("force_sum"))
    several("--no-unshard-in-backward", "no_unshard_in_backward", str)
    flag("--reduce-unused", case.get("reduce_scatter_unused_params"))
    option("--reduce-scatter-buffers", "reduce_scatter_max_input_buffers")
    option("--shard-dim", "shard_dim")
    flag("--cpu-offload", case.get("cpu_offload"))
    flag("--clip", case.get("clip"))

    mixed = case.get("mp", {})
    for name in ("param_dtype", "reduce_dtype", "buffer_dtype", "output_dtype"):
        if name in mixed:
            line.extend(["--" + name.replace("_", "-"), mixed[name]])
    flag("--keep-low-precision-grads", mixed.get("keep_low_precision_grads"))
    flag("--cast-forward-inputs", mixed.get("cast_forward_inputs"))
    flag("--no-cast-root-inputs", not mixed.get("cast_root_forward_inputs", True))
    if "root_mp" in case:
        line.extend(["--root-output-dtype", case["root_mp"]["output_dtype"]])

    accum = case.get("accum", {"n": 1, "mode": "sync"})
    line.extend(["--accumulate", str(accum["n"])])
    flag("--no-sync", accum["mode"] == "no_sync")
    flag("--no-all-reduce", accum["mode"] == "no_all_reduce")
    flag("--keep-unsharded", accum.get("keep_unsharded"))
    flag("--last-backward", accum.get("last_backward"))
    if checkpointing := case.get("ac"):
        line.extend(["--activation-checkpointing", checkpointing["mode"]])
        if "modules" in checkpointing:
            line.extend(["--checkpoint", *checkpointing["modules"]])
        flag("--reentrant", checkpointing.get("reentrant"))
    return line


def matches(pattern, path):
    wanted, parts = pattern.split("."), path.split(".")
    return len(wanted) == len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted))


def same_settings(read, stored):
    """Settings read off a model name modules where the stored ones have patterns, and leave defaults out."""
    read, stored = dict(read), dict(stored)
    for key, default in DEFAULTS.items():
        if stored.get(key, ...) == default:
            del stored[key]
    if stored.get("world") == 1 and stored["engine"] == "fsdp1":
        read.pop("strategy", None)  # PyTorch turns every strategy into NO_SHARD
    others = len(read["wrap"]) - 1
    for key in ("forward_prefetch_n", "backward_prefetch_n"):  # no more than there are
        if key in stored and not (n := min(stored.pop(key), others)) < 1:
            stored[key] = n
    for case in (read, stored):
        case.pop("backend", None)
        if case.get("ac", {}).get("mode") in ("inside", "outside"):
            case["ac"] = case["ac"] | {"modules": len(case["ac"]["modules"])}
        case.pop("wrap")
    if isinstance(stored.get("ac", {}).get("modules"), int):
        stored["ac"]["modules"] = read.get("ac", {}).get("modules")  # patterns
    for case in (read, stored):  # what units do, and what the root does: by itself it keeps its parameters
        given = case.pop("reshard_after_forward", None)
        root = case.pop("root_reshard_after_forward", False if given is None else given)
        case["reshard"] = repr((True if given is None else given, root))
    return read == stored


def differences(new, old):
    """The first thing in which a new recording differs from a stored one; None when they are equal."""
    for key in ("format", "version", "world", "rank", "backend", "model_tree"):
        if new[key] != old[key]:
            return f"{key}: {new[key]} instead of {old[key]}"
    for a, b in zip(new["units"], old["units"]):
        if a != b:
            return f"unit {b['fqn']}: {a} instead of {b}"
    if len(new["units"]) != len(old["units"]) or len(new["iterations"]) != len(old["iterations"]):
        return "another number of units or iterations"
    for i, (a, b) in enumerate(zip(new["iterations"], old["iterations"])):
        for j, (x, y) in enumerate(zip(a.get("events", []), b.get("events", []))):
            if x != y:
                return f"iteration {i}, event {j}: {x} instead of {y}"
        if a != b:
            return f"iteration {i}: {a.get('mem', a)} instead of {b.get('mem', b)}, or another number of events"
    for path in (u["fqn"] for u in old["units"] if u["fqn"]):
        for part in path.split(","):
            if part not in new["case"]["wrap"] or not any(matches(p, part) for p in old["case"]["wrap"]):
                return f"{part} is not among the wrapped modules {new['case']['wrap']}"
    if not same_settings(new["case"], old["case"]):
        return f"settings {new['case']} instead of {old['case']}"
    return None


def compare(path):
    """In a process of its own, since a process group and patched functions leave traces."""
    import fsdplan.cli

    old = json.loads(path.read_text())
    with tempfile.TemporaryDirectory() as folder:
        line = [*arguments(old["case"]), "-o", folder]
        if status := fsdplan.cli.main(line):
            return f"exit status {status} of {' '.join(line)}"
        new = json.loads(pathlib.Path(folder, path.name).read_text())
        name = f"{old['model_tree']}.json"
        tree = json.loads(pathlib.Path(folder, "models", name).read_text())
        stored = json.loads((path.parent / "models" / name).read_text())
        for document in (tree, stored):
            del document["source"]
        if tree != stored:
            return "the module tree differs in " + ", ".join(k for k in stored if tree.get(k) != stored[k])
        return differences(new, old)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--golden", type=pathlib.Path, default=HERE.parent / "golden" / "runtime")
    parser.add_argument("--only", help="shell pattern on names")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    if not options.golden.is_dir():
        print(f"no recordings in {options.golden}")
        return 77
    wanted = []
    for path in sorted(options.golden.glob("*.json")):
        if options.only and not fnmatch.fnmatchcase(path.stem, options.only):
            continue
        if not (options.all or options.only or path.stem in USUAL):
            continue
        document = json.loads(path.read_text())
        if document.get("format") == "fsdplan.runtime-golden" and document["backend"] == "fake":
            wanted.append(path)

    import transformers  # before the processes start, so that each need not load it again
    for name in ("Llama", "Mixtral"):
        getattr(transformers, name + "ForCausalLM")
    getattr(transformers, "T5ForConditionalGeneration")
    import fsdplan.cli  # noqa: F401

    bad = 0
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for path, problem in zip(wanted, pool.imap(compare, wanted, chunksize=1)):
            if problem:
                bad += 1
                print(f"{path.stem}: {problem}", flush=True)
    print(f"{len(wanted) - bad} of {len(wanted)} recordings are reproduced")
    return 1 if bad or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
