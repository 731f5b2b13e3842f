"""Reads the bytes alive in a step off the `operators` of an export, as docs/formats.md says."""
import collections


class Memory:
    """Storages that the program holds or that autograd keeps."""

    def __init__(self, operators):
        self.sizes, self.forward = operators["storages"], operators["forward"]
        self.held, self.kept, self.live = set(), collections.Counter(), 0

    def run(self, row, in_place):
        """Returns the bytes alive when the row's operator has returned."""
        reused = self.sizes[row["reuses"]] if in_place and "reuses" in row else 0
        self.held.update(row.get("new", []))
        self.kept.update(row.get("saved", []))
        self.live += sum(self.sizes[s] for s in row.get("new", []))
        peak = self.live - reused
        released = [s for of in row.get("released", []) for s in self.forward[of]["saved"]]
        self.held.difference_update(row.get("gone", []))
        self.kept.subtract(released)
        for storage in {*row.get("gone", []), *released}:
            if storage not in self.held and not self.kept[storage]:
                self.live -= self.sizes[storage]
        return peak


def replay(operators, in_place=False):
    """Bytes alive beyond the start: at the peaks of forward and backward and at the ends of both.

    `in_place`: as in training; without it as under a dispatch mode, where the engine does not add in place.
    """
    memory, result = Memory(operators), {}
    for phase in ("forward", "backward"):
        peak = memory.live
        for row in operators[phase]:
            peak = max(peak, memory.run(row, in_place))
        result |= {f"{phase}_peak_bytes": peak, f"after_{phase}_bytes": memory.live}
    return result


def broken_law(document):
    """The first law of the format that an export breaks; None when it keeps all."""
    operators = document["operators"]
    forward, backward = operators["forward"], operators["backward"]
    rows = [*forward, *backward]
    new = [s for row in rows for s in row.get("new", [])]
    if new != list(range(len(operators["storages"]))):
        return "storages are not numbered as they are allocated"
    gone = [s for row in rows for s in row.get("gone", [])]
    if len(gone) != len(set(gone)):
        return "a storage goes twice"
    born = {s: i for i, row in enumerate(rows) for s in row.get("new", [])}
    for i, row in enumerate(rows):
        if any(born[s] > i for key in ("saved", "gone") for s in row.get(key, [])):
            return f"row {i} names a storage before it is there"
        if "reuses" in row and (row["reuses"] not in row["gone"] or len(row["new"]) != 1):
            return f"row {i} reuses what does not go"
    saving = [i for i, row in enumerate(forward) if "saved" in row]
    if sorted(of for row in backward for of in row.get("released", [])) != saving:
        return "what was saved is not released once"
    last = {row["of"]: i for i, row in enumerate(backward) if "re" not in row}
    calls = len(document["forward_order"])
    if not all(-1 <= row["call"] < calls for row in forward) or not all(0 <= row["of"] < len(forward) for row in backward):
        return "a row names a call or a row that is not there"
    work = collections.Counter()
    for row in backward:
        if "re" not in row:
            work[row["of"]] += row.get("flops", 0)
    for i, row in enumerate(forward):
        if operators["names"][row["op"]] in ("aten.mm.default", "aten.addmm.default", "aten.bmm.default") and i in last:
            if work[i] not in (row["flops"], 2 * row["flops"]):
                return f"row {i} has {row['flops']} FLOPs and {work[i]} in backward"
    return None
