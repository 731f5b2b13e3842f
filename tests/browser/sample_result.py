#!/usr/bin/env python3
"""Writes result documents for the tests of the HTML report. Python standard library only.

usage: sample_result.py FOLDER

The modules, plateaus and units are Llama-3 8B's, from tests/golden/wrap; bytes and times come from a toy
model and are no expected values for any test. The other documents are variations: nothing fits, the answer
depends, PyTorch refuses, one plan, no plan, hundreds of plateaus, names that try to break out, a huge tree.
"""
import copy, gzip, json, math, pathlib, sys

GIB = 2**30
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "wrap"
RANKS, TOKENS = 8, 3 * 4096


# ---- the model and its units
def module_rows(tree):
    """Modules in pre-order, {name, class, parent, numel}; numel counts the whole subtree."""
    rows, numel_of = [], [math.prod(t["shape"]) for t in tree["tensors"]]

    def visit(m, name, parent):
        entry, row = tree["modules"][m], len(rows)
        rows.append({"name": name, "class": tree["classes"][entry["class"]]["name"], "parent": parent, "numel": 0})
        own = sum(numel_of[t] for t in entry.get("parameters", {}).values())
        rows[row]["numel"] = own + sum(visit(c, n, row) for n, c in entry.get("children", {}).items())
        return rows[row]["numel"]

    visit(tree["root"], "", -1)
    return rows


def children_of(rows):
    children = [[] for _ in rows]
    for i, row in enumerate(rows[1:], 1):
        children[row["parent"]].append(i)
    return children


def size_based(rows, threshold):
    """Rows that become units: the default size_based_auto_wrap_policy of a tree without sharing."""
    children, wrapped = children_of(rows), []

    def visit(i):
        """What the units below and at i take."""
        inside = sum(visit(c) for c in children[i]) if rows[i]["numel"] >= threshold else 0
        kept = rows[i]["class"].split(".")[-1] in ("ModuleList", "ModuleDict", "MultiheadAttention")
        if i and not kept and rows[i]["numel"] - inside >= threshold:
            wrapped.append(i)
            return rows[i]["numel"]
        return inside

    visit(0)
    return sorted({0, *wrapped})


def path_of(rows, i):
    parts = []
    while i > 0:
        parts.append(rows[i]["name"])
        i = rows[i]["parent"]
    return ".".join(reversed(parts))


# ---- one plan
def memory_of(numels, root, budget_scale):
    total, largest = sum(numels), sorted(numels[1:], reverse=True)[:2]
    exact = lambda term, n, note: {"term": term, "bytes": n, "low_bytes": n, "high_bytes": n, "exact": True, "note": note}
    about = lambda term, n, spread, note: {"term": term, "bytes": int(n), "low_bytes": int(n * (1 - spread)), "high_bytes": int(n * (1 + spread)), "exact": False, "note": note}
    gathered = 2 * (root + sum(largest))
    return [
        exact("parameter_shards", 4 * total // RANKS, "float32 master weights, 1/8 of each unit"),
        exact("gradient_shards", 4 * total // RANKS, "float32, held until the optimizer step"),
        exact("optimizer_state", 8 * total // RANKS, "AdamW: two moments in float32"),
        exact("unsharded_parameters", gathered, "bfloat16: the root and two units, because of prefetch"),
        exact("unsharded_gradients", 2 * max(numels), "bfloat16, the largest unit"),
        about("activations", 41.2 * GIB * budget_scale, .06, "saved for backward, no checkpointing"),
        about("logits", 4 * 128256 * TOKENS * budget_scale, .25, "float32 logits of one micro-batch and their gradient"),
        about("workspaces", 96 << 20, .5, "cuBLAS and attention"),
        about("cuda_context", 520 << 20, .1, "driver and kernels, outside PyTorch's allocator"),
        about("nccl_buffers", 1100 << 20, .3, "two communicators"),
        about("allocator_slack", .02 * (41 * GIB + gathered), .5, "reserved by the allocator, not allocated"),
    ]


def plan_of(rows, units, interval, label, budget, scale):
    numel = {i: rows[i]["numel"] for i in units}
    unit_of, index = [], {m: k for k, m in enumerate(units)}
    for i, row in enumerate(rows):
        unit_of.append(index.get(i, unit_of[row["parent"]] if i else 0))
        if i and i in index:  # its parameters leave the unit above
            numel[units[unit_of[row["parent"]]]] -= row["numel"]
    numels = [numel[i] for i in units]
    memory = memory_of(numels, numels[0], scale)
    process, low, high = (sum(t[k] for t in memory) for k in ("bytes", "low_bytes", "high_bytes"))
    holding, total = sum(n > 0 for n in numels), sum(numels)
    sent = 3 * 2 * total * (RANKS - 1) // RANKS
    exposed = int(4e6 + 5e4 * holding + max(numels) * 2 / 180e9 * 1e9)
    step = int(1.93e9 * scale) + exposed
    classes = {}
    for i in units:
        name = rows[i]["class"].split(".")[-1]
        classes[name] = classes.get(name, 0) + 1
    collective = lambda op, count, size: {"op": op, "count": count, "bytes": size}
    gathers, scatters = collective("all_gather", 2 * holding, 4 * total), collective("reduce_scatter", holding, 2 * total)
    largest = max(range(len(units)), key=lambda k: numels[k])
    fits = True if high <= budget else False if low > budget else None
    lo, hi = interval
    return {
        "min_num_params": {"lo": lo, "hi": hi}, "label": label, "units": len(units), "units_with_parameters": holding,
        "largest_unit": path_of(rows, units[largest]), "largest_unit_numel": numels[largest], "root_numel": numels[0],
        "units_by_class": classes, "unit_modules": [path_of(rows, i) for i in units], "unit_numel": numels, "unit_of": unit_of,
        "peak": {"allocated_bytes": process - sum(t["bytes"] for t in memory[-3:]), "reserved_bytes": process - sum(t["bytes"] for t in memory[-3:-1]), "process_bytes": process, "low_bytes": low, "high_bytes": high},
        "memory": memory, "step_ns": step, "step_low_ns": int(step * .9), "step_high_ns": int(step * 1.12), "exposed_ns": exposed, "sent_bytes": sent,
        "collectives": [gathers, scatters],
        "strategies": [
            {"strategy": "FULL_SHARD", "sent_bytes": sent, "collectives": [gathers, scatters]},
            {"strategy": "SHARD_GRAD_OP", "sent_bytes": sent * 2 // 3, "collectives": [collective("all_gather", holding, 2 * total), scatters]},
            {"strategy": "NO_SHARD", "sent_bytes": sent * 2 // 3, "collectives": [collective("all_reduce", holding, 2 * total)]},
        ],
        "fits": fits, "left_bytes": budget - process, "diagnostics": [],
        "code": {
            "FSDP1": f"from functools import partial\n\nimport torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nfrom torch.distributed.fsdp import MixedPrecision\nfrom torch.distributed.fsdp.wrap import size_based_auto_wrap_policy\n\nmodel = FSDP(\n    model,\n    auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params={lo}),\n    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),\n    device_id=torch.cuda.current_device(),\n)\n",
            "FSDP2": "from torch.distributed.fsdp import fully_shard\n\nfor layer in model.model.layers:\n    fully_shard(layer)\nfully_shard(model)\n",
        },
    }


# ---- one document
def finish(doc):
    """Sets recommended and verdict from the plans."""
    usable = [k for k, p in enumerate(doc["plans"]) if not any(d["severity"] != "warning" for d in p["diagnostics"]) and p["fits"] is not False]
    sure = [k for k in usable if doc["plans"][k]["fits"]]
    choice = min(sure or usable, key=lambda k: doc["plans"][k]["step_ns"], default=None)
    doc["recommended"] = choice
    nearest = choice if choice is not None else min(range(len(doc["plans"])), key=lambda k: doc["plans"][k]["peak"]["process_bytes"], default=None)
    left = doc["plans"][nearest]["left_bytes"] if nearest is not None else 0
    fits = doc["plans"][choice]["fits"] if choice is not None else False
    doc["verdict"] = {
        "fits": fits, "left_bytes": left, "decided_by": "activations",
        "text": {True: f"It fits with {left / GIB:.1f} GiB left; activations decide.", None: "It depends: the budget lies inside the interval of the estimate, and activations decide.",
                 False: "No value of min_num_params fits. The nearest plan is short by %.1f GiB; activations decide." % (-left / GIB)}[fits],
        "next": [{"change": "--activation-checkpointing blocks", "effect": "about 37 GiB less, the step about 30 % longer"},
                 {"change": "--batch 2", "effect": "about 14 GiB less, two thirds of the tokens a step"}],
    }
    return doc


def document(rows, intervals, budget=int(79.11 * GIB), scale=1.0, name="meta-llama/Meta-Llama-3-8B"):
    def label(units):
        classes = {}
        for i in units[1:]:
            c = rows[i]["class"].split(".")[-1]
            classes[c] = classes.get(c, 0) + 1
        if not classes:
            return "no inner unit"
        top = sorted(classes.items(), key=lambda e: -e[1])[:2]
        return " + ".join(f"{n} × {c}" for c, n in top)

    plans = []
    for lo, hi in intervals:
        units = size_based(rows, lo)
        plans.append(plan_of(rows, units, (lo, hi), label(units), budget, scale))
    total = rows[0]["numel"]
    return finish({
        "format": "fsdplan.result", "version": 1, "command": "sweep", "fsdplan": "0.1.0",
        "model": {"name": name, "source": "models/nets/llama3-8b/config.json", "class": rows[0]["class"], "modules": len(rows),
                  "parameters": {"numel": total, "trainable_numel": total, "bytes": 2 * total}, "notes": ["the numbers of this document are invented"]},
        "job": {"runtime": "fsdp1", "strategy": "FULL_SHARD", "world_size": RANKS, "replicate": 1, "shard": RANKS, "batch": 3, "seq": 4096, "accumulate": 1,
                "storage_dtype": "float32", "param_dtype": "bfloat16", "reduce_dtype": "bfloat16", "optimizer": "adamw:foreach", "activation_checkpointing": "none", "loss": "cross_entropy", "use_orig_params": False},
        "cluster": {"name": "8 x h100-sxm", "gpu": "H100 SXM", "gpus": RANKS, "gpus_per_node": 8, "memory_bytes": int(79.11 * GIB), "budget_bytes": budget},
        "assumptions": [
            {"name": "GPU memory", "value": "79.11 GiB", "from": "device table", "note": "what an 80 GB H100 reports as its total"},
            {"name": "matrix product rate", "value": "455 TFLOP/s", "from": "device table, 46 % of peak", "note": "bfloat16, dense; measure it with fsdplan calibrate"},
            {"name": "NCCL bus bandwidth", "value": "362 GB/s", "from": "device table", "note": "8 ranks in one node, messages of 64 MiB and more"},
            {"name": "attention", "value": "flash", "from": "default", "note": "no S × S matrix is kept for backward"},
            {"name": "batch", "value": "3 sequences on each GPU", "from": "--batch", "note": ""},
        ],
        "verdict": None, "recommended": None, "plans": plans, "modules": rows,
    })


def reordered(doc):
    """The keys in the order of the contract."""
    order = ["format", "version", "command", "fsdplan", "model", "job", "cluster", "assumptions", "verdict", "recommended", "plans", "modules", "modules_note"]
    return {k: doc[k] for k in order if k in doc}


# ---- variations
def llama():
    tree = json.loads((GOLDEN / "llama3-8b.tree.json").read_text())
    units = json.loads(gzip.decompress((GOLDEN / "llama3-8b.units.json.gz").read_bytes()))
    rows, intervals = module_rows(tree), []
    for piece in reversed(units["size_based_intervals"]):
        assert len(size_based(rows, piece["lo"])) - 1 == piece["units"], piece
        intervals.append((piece["lo"], piece["hi"]))
    return rows, intervals


def refuses(rows, intervals):
    doc = document(rows, intervals)
    for p in doc["plans"][:6]:
        p["diagnostics"] = [{"rule": "mixed_dtype", "severity": "error", "unit": "model.layers.3.mlp", "tensors": ["model.layers.3.mlp.up_proj.weight", "model.layers.3.mlp.gate.bias"],
                             "message": "Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"}]
    doc["plans"][6]["diagnostics"] = [{"rule": "tied_across_units", "severity": "forward_error", "unit": "lm_head", "tensors": ["lm_head.weight"], "message": "the weight is not there when the first forward needs it"}]
    for p in doc["plans"]:
        p["diagnostics"] += [{"rule": "tied_across_units", "severity": "warning", "unit": "lm_head", "tensors": ["lm_head.weight"], "message": "the tied weight is in two units: they train apart"}] * 7
    return finish(doc)


def all_refused(rows, intervals):
    doc = refuses(rows, intervals)
    for p in doc["plans"]:
        p["diagnostics"] = doc["plans"][0]["diagnostics"]
        p["code"] = {}
    return finish(doc)


def toy(units=1):
    rows = [{"name": "", "class": "torch.nn.modules.container.Sequential", "parent": -1, "numel": 72},
            {"name": "0", "class": "torch.nn.modules.linear.Linear", "parent": 0, "numel": 72}]
    return document(rows, [(0, None)] if units == 1 else [(0, 0), (1, 72), (73, None)], name="two-linears")


HOSTILE = ["</script><script>document.title='owned'</script>", "<!--<script>", "\"><img src=x onerror=\"document.title='owned'\">", "/*@js@*/ /*@data@*/",
           "\u202eright to left", "a\u2028b\u2029c\nd\te", "\\u003c \\\\ ' ` ${1+1} &lt;b&gt;", "💥" * 40, "long" * 3000, "__proto__", "constructor"]


def hostile():
    rows = [{"name": "", "class": HOSTILE[0], "parent": -1, "numel": 1000 * len(HOSTILE)}]
    for text in HOSTILE:
        rows.append({"name": text, "class": text, "parent": 0, "numel": 1000})
    doc = document(rows, [(0, 1000), (1001, None)], name=HOSTILE[0])
    for k, p in enumerate(doc["plans"]):
        p["label"] = HOSTILE[k] + HOSTILE[4]
        p["units_by_class"] = {text: 1 for text in HOSTILE}
        p["diagnostics"] = [{"rule": HOSTILE[2], "severity": "warning", "unit": HOSTILE[0], "tensors": HOSTILE, "message": text} for text in HOSTILE]
        p["memory"].append({"term": HOSTILE[2], "bytes": GIB, "low_bytes": GIB, "high_bytes": GIB, "exact": True, "note": HOSTILE[0]})
        p["memory"].append({"term": "constructor", "bytes": GIB, "low_bytes": GIB, "high_bytes": GIB, "exact": True, "note": HOSTILE[8]})
        p["strategies"][1]["strategy"] = HOSTILE[0]
        p["collectives"][0]["op"] = HOSTILE[2]
        p["code"] = {"FSDP1": HOSTILE[0], "FSDP2": HOSTILE[8]}
    doc["model"].update({"source": HOSTILE[0], "class": HOSTILE[0], "notes": HOSTILE})
    doc["cluster"].update({"name": HOSTILE[0], "gpu": HOSTILE[2]})
    doc["assumptions"] = [{"name": t, "value": t, "from": t, "note": t} for t in HOSTILE]
    doc["verdict"].update({"text": HOSTILE[0], "decided_by": HOSTILE[2], "next": [{"change": t, "effect": t} for t in HOSTILE]})
    doc["modules_note"] = HOSTILE[0]
    return doc


def huge():
    """58 layers of 256 experts with four modules each: 59,508 modules, and a chain deeper than any stack."""
    rows = [{"name": "", "class": "huge.Model", "parent": -1, "numel": 0}]

    def add(name, cls, parent, numel):
        rows.append({"name": name, "class": cls, "parent": parent, "numel": numel})
        return len(rows) - 1

    top = add("layers", "torch.nn.modules.container.ModuleList", 0, 58 * 256 * 3_000_000)
    for layer in range(58):
        block = add(str(layer), "huge.Layer", top, 256 * 3_000_000)
        for expert in range(256):
            e = add(str(expert), "huge.Expert", block, 3_000_000)
            for w in ("w1", "w2", "w3"):
                add(w, "torch.nn.modules.linear.Linear", e, 1_000_000)
    below = 0
    for depth in range(3000):
        below = add("deep", "huge.Deep", below, 10**10)
    rows[0]["numel"] = rows[top]["numel"] + 10**10
    units = [0] + [i for i, r in enumerate(rows) if r["class"] == "huge.Layer"]
    doc = document(rows[:2], [(0, 10**6), (10**6 + 1, 10**9), (10**9 + 1, None)], name="huge")
    for k, p in enumerate(doc["plans"]):
        doc["plans"][k] = plan_of(rows, units if k < 2 else [0], (p["min_num_params"]["lo"], p["min_num_params"]["hi"]), f"plan {k}", doc["cluster"]["budget_bytes"], 1.0)
    doc.update({"modules": rows})
    doc["model"]["modules"] = len(rows)
    return finish(doc)


def many():
    """138 plateaus, most of them slivers, as a large convolutional network has."""
    rows = toy()["modules"]
    ends = [round(1.13**k) + k for k in range(137)]
    doc = document(rows, list(zip([0] + [e + 1 for e in ends], ends + [None])), name="efficientnet-like")
    for k, p in enumerate(doc["plans"]):
        p["label"], p["units"] = f"plan {k}", 600 - 4 * k
        for key in ("step_ns", "step_low_ns", "step_high_ns"):
            p[key] += 2_000_000 * abs(k - 60)
        p["peak"], p["left_bytes"] = {n: v + k * 10**8 for n, v in p["peak"].items()}, p["left_bytes"] - k * 10**8
    return finish(doc)


def without_modules(rows, intervals):
    doc = document(rows, intervals)
    doc["modules_note"] = "1,200,000 modules: the tree is left out"
    del doc["modules"]
    for p in doc["plans"]:
        p["unit_of"] = []
    return doc


def no_plans(rows):
    doc = document(rows, [])
    doc["verdict"]["text"] = "there is nothing to wrap"
    return doc


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rows, intervals = llama()
    again = lambda: copy.deepcopy(rows)
    samples = {
        "fits": document(again(), intervals),
        "nothing_fits": document(again(), intervals, budget=int(39.4 * GIB)),
        "depends": document(again(), intervals, budget=int(67.5 * GIB)),
        "refused": refuses(again(), intervals),
        "all_refused": all_refused(again(), intervals),
        "one_plan": toy(),
        "small": toy(3),
        "no_plans": no_plans(again()),
        "no_modules": without_modules(again(), intervals),
        "many": many(),
        "hostile": hostile(),
        "huge": huge(),
    }
    for name, doc in samples.items():
        (folder / f"{name}.json").write_text(json.dumps(reordered(doc), ensure_ascii=name == "huge", separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
