"""Turns what `Operators` has seen into the `operators` object of a module tree, version 2 (docs/formats.md)."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import Any

from torch import nn

from .operators import OUTSIDE, Node, Operators, Row


def operator_rows(seen: Operators, nodes: dict[int, Node], tensor_ids: dict[nn.Parameter, int]) -> dict[str, Any]:
    """`names`, `storages`, `forward` and `backward`. `nodes` are the autograd nodes by sequence number."""
    return _Rows(seen, nodes, tensor_ids).document()


class _Rows:
    def __init__(self, seen: Operators, nodes: dict[int, Node], tensor_ids: dict[nn.Parameter, int]) -> None:
        self._seen, self._nodes, self._tensor_ids = seen, nodes, tensor_ids
        self._first_backward = sum(not row.backward for row in seen.rows)
        self._owners = self._owner_of_each_node()
        self._saved: dict[int, set[int]] = defaultdict(set)  # forward row -> storages
        self._release: dict[int, int] = {}  # forward row -> row after which autograd lets go of what it saved
        for release in seen.releases:
            if release.node is not None:
                owner = self._owners[release.node]
                self._saved[owner].add(release.storage)
                self._release[owner] = max(self._release.get(owner, 0), release.row)
        self._kept = self._kept_rows()

    def document(self) -> dict[str, Any]:
        seen = self._seen
        names: dict[str, int] = {}
        numbers = {row: i for i, row in enumerate(r for r in self._kept if r < self._first_backward)}
        gone, released = defaultdict(list), defaultdict(list)
        gradients = defaultdict(list)
        reuses = self._reuses()
        for storage, row in sorted(self._gone().items()):
            gone[self._at(row)].append(storage)
        for owner, row in sorted(self._release.items()):
            released[self._at(row)].append(numbers[owner])
        for i, row in enumerate(seen.rows):
            for storage, parameter in row.gradient:
                gradients[self._at(i)].append([storage, self._tensor_ids[parameter]])
        forward, backward = [], []
        for i in self._kept:
            row = seen.rows[i]
            document: dict[str, Any] = {"op": names.setdefault(row.name, len(names))}
            if row.backward:
                document["of"] = numbers[self._owners[row.node]]
                parts: dict[str, Any] = {"re": int(row.again)}
                if i in reuses:
                    document["reuses"] = reuses[i]
            else:
                document["call"] = row.call
                parts = {}
            parts |= {"flops": row.flops, "bytes": row.bytes, "new": row.new, "saved": sorted(self._saved.get(i, ())),
                      "gone": gone[i], "released": released[i], "gradient": gradients[i]}
            document |= {key: value for key, value in parts.items() if value}
            (backward if row.backward else forward).append(document)
        return {"names": list(names), "storages": seen.bytes, "forward": forward, "backward": backward}

    def _owner_of_each_node(self) -> dict[int, int]:
        """The forward row that each node belongs to.

        A node takes its number just before its operator runs. An autograd.Function takes its number before the first of its
        operators and saves after the last one; it belongs to the last.
        """
        forward = [row.node for row in self._seen.rows[:self._first_backward]]  # never falls
        owners: dict[int, int] = {}
        for number, node in self._nodes.items():
            its = number - 1 if node.name == "CopySlices" else number  # wraps the node before it, which wrote into a view
            row = bisect.bisect_left(forward, its)
            owners[number] = row if row < len(forward) and forward[row] == its else max(row - 1, 0)
        for release in self._seen.releases:
            if release.node is not None and release.saved_at < self._first_backward:
                owners[release.node] = max(owners[release.node], release.saved_at)
        return owners

    def additions(self) -> dict[int, int]:
        """Rows in which the engine adds gradients for one input of a node -> the node that made the last of them.

        They are the last of what runs for that node, one for every input that somebody else has fed before.
        """
        rows, found = self._seen.rows, {}
        fed: set[tuple[int, int]] = set()
        ends = [start for _, start in self._seen.runs[1:]] + [len(rows)]
        for (number, start), end in zip(self._seen.runs, ends):
            again = 0
            for place in self._nodes[number].feeds:
                again += place in fed
                fed.add(place)
            own = [i for i in range(start, end) if rows[i].new and not rows[i].accumulates]
            for i in reversed(own[len(own) - again:]):
                if rows[i].name != "aten.add.Tensor" or rows[i].again:
                    break
                found[i] = number
        return found

    def _reuses(self) -> dict[int, int]:
        """Rows in which the engine adds in place when no mode watches it -> the storage that it adds to.

        It does when nobody but itself holds the first gradient, which then goes right after the addition.
        """
        rows, gone = self._seen.rows, self._gone()
        return {i: rows[i].own_first for i in self.additions()
                if rows[i].own_first != OUTSIDE and gone.get(rows[i].own_first) == i}

    def _kept_rows(self) -> list[int]:
        """All but views; of the views those that save something or whose backward computes."""
        def counts(row: Row) -> bool:
            return bool(row.new) or row.writes

        rows = self._seen.rows
        kept = {i for i, row in enumerate(rows) if counts(row)} | set(self._saved)
        kept |= {self._owners[rows[i].node] for i in kept if rows[i].backward}
        return sorted(kept)

    def _at(self, row: int) -> int:
        """The last kept row up to this one."""
        return self._kept[max(bisect.bisect_right(self._kept, row) - 1, 0)]

    def _gone(self) -> dict[int, int]:
        """Storage -> row after which nobody but autograd holds it."""
        seen = self._seen
        last = dict(seen.gone)
        for release in seen.releases:  # a graph that was dropped: its memory went with the program's references
            if release.node is None and release.storage in last:
                last[release.storage] = max(last[release.storage], release.row)
        let_go: dict[int, int] = defaultdict(int)
        for release in seen.releases:
            let_go[release.storage] = max(let_go[release.storage], release.row)
        for storage, row in seen.last_copy.items():  # the program kept what autograd had given it
            if storage in last and row > let_go[storage]:
                last[storage] = max(last[storage], row)
        return {storage: row for storage, row in last.items() if not seen.kept[storage]}
