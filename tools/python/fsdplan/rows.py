"""Turns what `Operators` has seen into the `operators` object of a module tree, version 2 (docs/formats.md)."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import Any

from torch import nn

from .operators import Operators, Row


def operator_rows(seen: Operators, nodes: dict[int, str], tensor_ids: dict[nn.Parameter, int]) -> dict[str, Any]:
    """`names`, `storages`, `forward` and `backward`. `nodes` are the classes of the autograd nodes by sequence number."""
    return _Rows(seen, nodes, tensor_ids).document()


class _Rows:
    def __init__(self, seen: Operators, nodes: dict[int, str], tensor_ids: dict[nn.Parameter, int]) -> None:
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
        for number, name in self._nodes.items():
            if name == "CopySlices":  # wraps the node before it, which wrote into a view
                number_there = number - 1
            else:
                number_there = number
            row = bisect.bisect_left(forward, number_there)
            owners[number] = row if row < len(forward) and forward[row] == number_there else max(row - 1, 0)
        for release in self._seen.releases:
            if release.node is not None and release.saved_at < self._first_backward:
                owners[release.node] = max(owners[release.node], release.saved_at)
        return owners

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
