#!/usr/bin/env python3
"""Checks memory snapshots for what PyTorch's viewer asks of them. usage: snapshot_check.py [--torch] FILE...

The viewer unpickles with code of its own and replays the trace backwards from the segments at its end, so it wants
more than Python does. --torch also hands each file to torch.cuda._memory_viz, which needs no GPU.
Exit status: 0 all good, 1 something is not, 2 the command line is wrong.
"""
import pathlib, pickle, pickletools, sys

# What the viewer's unpickler has a case for.
KNOWN = {"PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
         "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_DICT", "SETITEM", "SETITEMS", "DICT",
         "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"}
MOST_AT_ONCE = 1000


def pickle_faults(raw):
    for code, argument, at in pickletools.genops(raw):
        if code.name not in KNOWN:
            yield f"byte {at}: opcode {code.name}"
        if code.name == "PROTO" and not 2 <= argument <= 4:
            yield f"protocol {argument}"
    # Items between a MARK and its APPENDS, by replaying the stack as far as it matters.
    stack, marks = 0, []
    for code, _, at in pickletools.genops(raw):
        if code.name == "MARK":
            marks.append(stack)
        elif code.name in ("APPENDS", "SETITEMS"):
            if code.name == "APPENDS" and stack - marks[-1] > MOST_AT_ONCE:
                yield f"byte {at}: {stack - marks[-1]} items in one APPENDS"
            stack = marks.pop()
        elif code.name == "TUPLE":
            stack = marks.pop() + 1
        elif code.name not in ("PROTO", "STOP", "BINPUT", "LONG_BINPUT"):
            stack += 1
    if marks:
        yield "a MARK without an end"


def segment_faults(segment):
    at, sums = segment["address"], {"allocated": 0, "active": 0, "requested": 0}
    for block in segment["blocks"]:
        if block["address"] != at:
            yield f"block {block['address']:#x} does not follow the one before"
        if block["requested_size"] > block["size"]:
            yield f"block {at:#x} holds more than it has"
        sums["allocated"] += block["size"] * (block["state"] == "active_allocated")
        sums["active"] += block["size"] * (block["state"] != "inactive")
        sums["requested"] += block["requested_size"] * (block["state"] != "inactive")
        at += block["size"]
    if at != segment["address"] + segment["total_size"]:
        yield f"segment {segment['address']:#x}: its blocks do not fill it"
    for key, total in sums.items():
        if segment[key + "_size"] != total:
            yield f"segment {segment['address']:#x}: {key}_size {segment[key + '_size']}, its blocks say {total}"


def inside(mapped, address, size):
    """Whether mapped runs, of one segment or one behind the other, hold [address, address + size)."""
    end = address + size
    for start in sorted(mapped):
        if start <= address < start + mapped[start]:
            address = start + mapped[start]
    return address >= end


def unmap(mapped, address, size):
    for start, length in list(mapped.items()):
        before, after = address - start, start + length - (address + size)
        if before < length and address + size > start:
            del mapped[start]
            if before > 0:
                mapped[start] = before
            if after > 0:
                mapped[address + size] = after


def trace_faults(trace, segments):
    states = {b["address"]: b for s in segments for b in s["blocks"]}
    live, leaving, mapped, now = {}, {}, {}, None
    for i, entry in enumerate(trace):
        action, address, size = entry["action"], entry.get("addr"), entry["size"]
        if now is not None and entry["time_us"] < now:
            yield f"entry {i}: time goes back"
        now = entry["time_us"]
        if action == "oom":
            if "device_free" not in entry:
                yield f"entry {i}: oom without device_free"
        elif action == "alloc":
            if address in live or address in leaving:
                yield f"entry {i}: {address:#x} is in use"
            if not inside(mapped, address, size):
                yield f"entry {i}: {address:#x} lies in no segment"
            live[address] = size
            if not entry["frames"] or "category" not in entry:
                yield f"entry {i}: nothing says what it is for"
        elif action == "free_requested":
            if live.pop(address, None) != size:
                yield f"entry {i}: {address:#x} with {size} bytes is not allocated"
            leaving[address] = size
        elif action == "free_completed":
            if leaving.pop(address, None) != size:
                yield f"entry {i}: no free of {address:#x} was requested"
        elif action in ("segment_alloc", "segment_map"):
            mapped[address] = size
        elif action in ("segment_free", "segment_unmap"):
            unmap(mapped, address, size)
        else:
            yield f"entry {i}: action {action}"
    for wanted, addresses in (("active_allocated", live), ("active_awaiting_free", leaving)):
        there = {a for a, b in states.items() if b["state"] == wanted}
        if there != set(addresses):
            yield f"the trace ends with {len(addresses)} {wanted}, the segments with {len(there)}, {len(there & set(addresses))} of them alike"
    categories = {e["category"] for e in trace if "category" in e}
    if categories and "unknown" not in categories:
        yield "entries have categories, but none is 'unknown'"


def faults(path, with_torch):
    raw = path.read_bytes()
    yield from pickle_faults(raw)
    snapshot = pickle.loads(raw)
    if not any("predicted" in key for key in snapshot["allocator_settings"]):
        yield "nothing says that it is predicted"
    for segment in snapshot["segments"]:
        yield from segment_faults(segment)
    for trace in snapshot["device_traces"]:
        if not trace:
            yield "an empty trace"
        yield from trace_faults(trace, snapshot["segments"])
    if with_torch:
        yield from torch_faults(snapshot)


def torch_faults(snapshot):
    """What `python -m torch.cuda._memory_viz stats` and `trace` say; in this process, since torch is slow to load."""
    from torch.cuda import _memory_viz
    for what in (_memory_viz.segsum, _memory_viz.trace):
        try:
            if not what(snapshot).strip():
                yield f"torch.cuda._memory_viz.{what.__name__} says nothing"
        except Exception as error:
            yield f"torch.cuda._memory_viz.{what.__name__}: {error!r}"


def main():
    arguments = sys.argv[1:]
    with_torch = "--torch" in arguments
    files = [pathlib.Path(a) for a in arguments if a != "--torch"]
    if not files or any(f.name.startswith("-") for f in files):
        print(__doc__)
        return 2
    bad = 0
    for file in files:
        found = list(faults(file, with_torch))
        bad += bool(found)
        for fault in found[:10]:
            print(f"{file.name}: {fault}")
    print(f"{len(files) - bad} of {len(files)} snapshots are good")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
