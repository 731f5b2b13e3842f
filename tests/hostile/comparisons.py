"""Odd and hostile inputs of `fsdplan decode` and `fsdplan diff`: logs, results and settings files.

make(folder) returns a list of Case.
"""

import dataclasses
import json
import os
import random

from more import gzip_bomb


@dataclasses.dataclass
class Case:
    name: str
    words: list  # of the command line after `fsdplan <command>`; {} stands for the folder
    cause: str = None  # refused with this in the message; None: answered, with yes or no
    command: str = "decode"
    either: bool = False  # refused or answered


WATCHDOG = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
GATHER = WATCHDOG + "SeqNum=7, OpType=_ALLGATHER_BASE, NumelIn=64, NumelOut=256, Timeout(ms)=600000) ran for 1 ms\n"


def logs(write):
    def fields(text):
        return WATCHDOG + text + ", Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n"

    refused = {
        "empty": ("", "no collective found"),
        "blank lines": ("\n" * 10_000, "no collective found"),
        "a log of something else": ("all is well\n" * 1000, "no collective found"),
        "negative size": (fields("SeqNum=1, OpType=ALLREDUCE, NumelIn=-1, NumelOut=4"), ':1: NumelIn: expected'),
        "size above 2^53": (fields("SeqNum=1, OpType=ALLREDUCE, NumelIn=9007199254740993, NumelOut=4"), "at most 2^53"),
        "size above 64 bits": (fields("SeqNum=1, OpType=ALLREDUCE, NumelIn=18446744073709551616, NumelOut=4"), "at most 2^53"),
        "size of a thousand digits": (fields("SeqNum=1, OpType=ALLREDUCE, NumelIn=" + "9" * 1000 + ", NumelOut=4"), "at most 2^53"),
        "size with a fraction": (fields("SeqNum=1, OpType=ALLREDUCE, NumelIn=4.5, NumelOut=4"), 'found "4.5"'),
        "size in hexadecimal": (fields("SeqNum=1, OpType=ALLREDUCE, NumelIn=0x10, NumelOut=4"), 'found "0x10"'),
        "negative number": (fields("SeqNum=-1, OpType=ALLREDUCE, NumelIn=4, NumelOut=4"), "SeqNum: expected"),
        "number above 63 bits": (fields("SeqNum=9223372036854775808, OpType=ALLREDUCE, NumelIn=4, NumelOut=4"), "SeqNum: expected"),
        "no operation": (fields("SeqNum=1, OpType=, NumelIn=4, NumelOut=4"), "OpType: expected"),
        "operation that is not UTF-8": (fields("SeqNum=1, OpType=").encode() + b"\xff\xfe(\n" + b"OpType=\xff, NumelIn=4\n", "OpType: expected"),
        "many faults": (fields("SeqNum=1, OpType=ALLREDUCE, NumelIn=-1, NumelOut=4") * 1000, ":20: NumelIn: expected"),
        "shape that overflows": ("CollectiveFingerPrint(SequenceNumber=1, OpType=REDUCE, TensorShape=[4294967296, 4294967296])", "2^53"),
        "more collectives than a timeout has": ("".join(GATHER.replace("7", str(i)) for i in range(10_001)), "more than 10,000"),
        "more sizes than a timeout has": ("".join(GATHER.replace("=64", f"={i}") for i in range(101)), "more than 100 different"),
        "a collective behind a million brackets": ("[" * 1_000_000 + " x (" + GATHER, "no collective found"),
        "shape of text": ("CollectiveFingerPrint(SequenceNumber=1, OpType=REDUCE, TensorShape=[a])", "TensorShape: expected"),
        "list of nothing": ("[]", "no collective found"),
        "list of numbers": ("[{}, 1]", "#/0"),
        "list with a negative size": ('[{"op": "ALLREDUCE", "numel_in": -1}]', "#/0/numel_in"),
        "list with a size beyond 64 bits": ('[{"op": "ALLREDUCE", "numel_in": 99999999999999999999}]', "#/0/numel_in"),
        "list with an unknown key": ('[{"op": "ALLREDUCE", "numel": 1}]', "numel_in"),
        "dump without entries": ('{"version": "2.10"}', "entries"),
        "dump that is done": ('{"entries": [{"state": "completed"}]}', "no collective found"),
        "dump that overflows": ('{"entries": [{"state": "started", "process_group": ["0"], "profiling_name": "nccl:all_reduce", '
                                '"input_sizes": [[9007199254740992, 2]], "output_sizes": [[1]]}]}', "2^53"),
        "deep list": ("[[" * 50_000, "#"),
    }
    for i, (name, (text, cause)) in enumerate(refused.items()):
        write(f"comparisons_log_{i}", text)
        # "[[" is the beginning of no log line and of no list of objects.
        yield Case(name, ["gpt2", "--file", f"{{}}/comparisons_log_{i}"], cause if name != "deep list" else "no collective found")
    answered = {
        "zero elements": fields("SeqNum=1, OpType=_ALLGATHER_BASE, NumelIn=0, NumelOut=0"),
        "zero in": fields("SeqNum=1, OpType=_ALLGATHER_BASE, NumelIn=0, NumelOut=9"),
        "no multiple": fields("SeqNum=1, OpType=_ALLGATHER_BASE, NumelIn=7, NumelOut=100"),
        "as many ranks as elements": fields("SeqNum=1, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=9007199254740992"),
        "a million ranks": fields("SeqNum=1, OpType=_ALLGATHER_BASE, NumelIn=9, NumelOut=9437184"),
        "unrecorded sizes": fields("SeqNum=2, OpType=COALESCED, NumelIn=18446744073709551615, NumelOut=18446744073709551615"),
        "an operation nobody knows": fields("SeqNum=2, OpType=" + "X" * 10_000 + ", NumelIn=4, NumelOut=4"),
        "a line cut short": WATCHDOG + "SeqNum=7, OpType=_ALLGATHER_BASE, NumelIn=",
        "a rank beyond all": "[rank99999999999999999999]: " + GATHER,
        "a rank of nothing": "[rank" * 5000 + GATHER,
        "a line of many brackets": "[" * 10_000 + " x (" + GATHER,
        "a line of a million operations": "OpType=A" * 1_000_000 + "\n" + GATHER,
        "bytes around": b"\xff\x00\n\xfe" + GATHER.encode() + b"\x80" * 100,
        "no end of lines": GATHER.rstrip("\n"),
        "lines that end as on Windows": GATHER.replace("\n", "\r\n") * 3,
        "many ranks": "".join(GATHER.replace("[Rank 3]", f"[Rank {i}]") for i in range(2000)),
        "progress of nobody": "[PG ] Rank at work: 7, last enqueued: x\n[PG ID  Rank 1] at work: 7, last enqueued NCCL work: 9\n" + GATHER,
    }
    for i, (name, text) in enumerate(answered.items()):
        write(f"comparisons_lines_{i}", text)
        yield Case(name, ["gpt2", "--file", f"{{}}/comparisons_lines_{i}"])
    source = random.Random(20261130)
    for i in range(20):
        line = bytearray(GATHER.encode())
        for _ in range(source.randrange(1, 6)):
            line[source.randrange(len(line))] = source.randrange(256)
        write(f"comparisons_damaged_{i}", bytes(line) + b"\n" + GATHER.encode())
        yield Case(f"damaged line {i}", ["gpt2", "--file", f"{{}}/comparisons_damaged_{i}"], either=True)


def requests():
    for words, cause in {
        ("--numel-in", "0", "--numel-out", "4"): "--numel-in", ("--numel-in", "-4", "--numel-out", "4"): "--numel-in",
        ("--numel-in", "99999999999999999999", "--numel-out", "4"): "--numel-in", ("--numel-in", "4"): "--numel-out",
        ("--line", ""): "no collective found", ("--file", ""): "cannot be read", ("--file", "{}/absent"): "absent: cannot be read",
        ("--file", "/dev/null"): "no collective found", (): "expected one of", ("--line", "x", "--numel-in", "4"): "expected one of",
    }.items():
        yield Case(" ".join(words), ["gpt2", *words], cause)


def results(write):
    """Each against a good one, in both places."""
    good = {"format": "fsdplan.result", "version": 1, "command": "sweep", "recommended": 0,
            "plans": [{"label": "x", "peak": {"process_bytes": 1}, "step_ns": 1}]}
    refused = {
        "empty": "", "no JSON": "{", "a number": "1", "a list": "[]", "a null": "null", "random": bytes(range(256)),
        "another format": {"format": "fsdplan.module-tree"}, "a later version": dict(good, version=2),
        "no version": {"format": "fsdplan.result"}, "a format of numbers": {"format": 1},
        "plans of numbers": dict(good, plans=[1]), "plans is a number": dict(good, plans=1),
        "a plan that is not there": dict(good, recommended=1), "a negative plan": dict(good, recommended=-1),
        "plans without peaks": dict(good, recommended=None, plans=[{}, {}]),
        "sums of text": dict(good, plans=[dict(good["plans"][0], memory=[{"term": "x", "bytes": "y"}])]),
        "sums beyond 2^53": dict(good, plans=[dict(good["plans"][0], memory=[{"term": "x", "bytes": 1 << 62}] * 3)]),
        "assumptions of numbers": dict(good, assumptions=[1]), "twice": '{"a": 1, "a": 2}',
        "deep": "[" * 100_000, "a bomb": gzip_bomb(600), "settings": {"train_batch_size": 1},
    }
    write("comparisons_good.json", json.dumps(good))
    for i, (name, content) in enumerate(refused.items()):
        write(f"comparisons_result_{i}.json", json.dumps(content) if isinstance(content, dict) else content)
        pair = ["{}/comparisons_good.json", f"{{}}/comparisons_result_{i}.json"]
        for words in (pair, pair[::-1]):
            yield Case(name, words, "", command="diff")
    answered = {
        "nothing but its format": {"format": "fsdplan.result", "version": 1},
        "huge numbers": dict(good, plans=[dict(good["plans"][0], step_ns=(1 << 63) - 1, peak={"process_bytes": -(1 << 63)})]),
        "numbers as text": dict(good, plans=[dict(good["plans"][0], step_ns="1")]),
        "fractions": dict(good, plans=[dict(good["plans"][0], step_ns=1e308)]),
        "names that are no text": dict(good, model={"name": 5}),
        "a label of a megabyte": dict(good, plans=[dict(good["plans"][0], label="x" * (1 << 20))]),
        "a name with control characters": dict(good, model={"name": "\u0000\u001b[31m"}),
        "members by the thousand": dict(good, job={str(i): i for i in range(100_000)}),
    }
    for i, (name, content) in enumerate(answered.items()):
        write(f"comparisons_odd_{i}.json", json.dumps(content))
        pair = ["{}/comparisons_good.json", f"{{}}/comparisons_odd_{i}.json"]
        for words in (pair, pair[::-1], [pair[1], pair[1]]):
            yield Case(name, words, command="diff")


def settings(write):
    write("comparisons_good.yaml", "a: 1\nb:\n  c: 2\n")
    refused = {"list": "- 1\n", "scalar": "x\n", "empty": "", "torn": "a: [b", "bytes": b"\xff\xfe\x00", "tabs": "a:\n\t- b: [\n"}
    for name, text in refused.items():
        write(f"comparisons_{name}.yaml", text)
        yield Case(f"YAML: {name}", ["{}/comparisons_good.yaml", f"{{}}/comparisons_{name}.yaml"], "", command="diff")
    write("comparisons_many.json", json.dumps({f"k{i}": i for i in range(100_000)}))
    write("comparisons_others.json", json.dumps({f"l{i}": i for i in range(100_000)}))
    yield Case("many keys", ["{}/comparisons_many.json", "{}/comparisons_others.json"], command="diff")
    yield Case("absent", ["{}/comparisons_good.yaml", "{}/comparisons_absent.yaml"], "cannot be read", command="diff")


def make(folder):
    def write(name, content):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())

    return [*logs(write), *requests(), *results(write), *settings(write)]
