"""Entries without a usable name, matched by value: one to one, unambiguous, in graph order, and never a proof by themselves.

Fingerprints (size, norm, extremes) prune; only the few pairs that are left are compared in full. An entry is accepted at a tensor
when it fits the prediction, no other tensor of another value fits nearly as well, no other entry competes, and the agreement carries
enough bits to be no accident. Constants, ties and tiny tensors stay unmatched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Entry
from bisect_align.errors import DumpError
from bisect_align.golden.protocol import Golden, Unavailable, Value
from bisect_align.matching.fit import BETTER, BITS, LOOSEST, Fit, Tolerance, Votes, bits, fit, learn, read, reorders
from bisect_align.matching.layout import fixes
from bisect_align.matching.observations import Observations
from bisect_align.matching.prints import Print, fingerprint
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph
from bisect_align.model.region import region

Array: TypeAlias = NDArray[Any]

CANDIDATES = 16  # tensors compared in full with one entry: those whose prints are nearest
SMALL, NEAR = 8, 8  # so few elements only count where the prediction stands on target values this many nodes above
IN_ORDER = 0.93  # share of matches in graph order from which the file order counts as evidence
STRAY = 8  # nodes by which a match may break that order

# The range that an operator's output cannot leave, whatever its input: tells the value before a clamp from the one after it.
RANGES = {"Relu": (0.0, np.inf), "Sigmoid": (0.0, 1.0), "HardSigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0), "Tanh": (-1.0, 1.0)}


@dataclass(frozen=True, slots=True, order=True)
class Nearness:
    """How an entry compares with a tensor: the residual, and whether it took a reordering of axes to get there."""

    residual: float
    moved: bool


@dataclass(slots=True)
class Pool:
    """Free entries, grouped by equal values in equal order: the first of a group stands for all. twins: the others -> the first."""

    entries: dict[str, Print] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)


def pool_of(entries: Iterable[Entry]) -> Pool:
    """Read each entry once; integers without scales and unreadable ones are left out."""
    pool = Pool()
    seen: dict[bytes, str] = {}
    for entry in entries:
        try:
            values = values_of(entry)
        except DumpError:
            continue
        found = fingerprint(values) if values is not None else None
        if found is None:
            continue
        first = seen.setdefault(found.digest, entry.key)
        if first != entry.key:
            pool.twins[entry.key] = first
        else:
            pool.entries[entry.key] = found
    return pool


def values_of(entry: Entry) -> Array | None:
    """The entry as float32; None where it says that it is no real tensor, or is headerless (its name must tell its tensor)."""
    if entry.dtype is None or entry.shape is None:
        return None
    if not is_float(entry.dtype) and entry.quant is None:
        return None
    return read(entry, np.dtype(np.float32), entry.shape)


class ByValue:
    """Rounds of matching by value over one pool. What was compared once is not compared again while neither the prediction nor the
    believed layouts change."""

    def __init__(self, graph: Graph, engine: Golden, inputs: Mapping[str, Array], pool: Pool, votes: Votes) -> None:
        self.graph, self.engine, self.inputs, self.pool, self.votes = graph, engine, inputs, pool, votes
        self._compared: dict[tuple[str, str, bytes], Nearness | None] = {}

    def round(
        self, observations: Observations, prints: Mapping[str, Print], tolerance: Tolerance | None
    ) -> tuple[dict[str, tuple[str, float]], Tolerance]:
        """New matches: entry -> (tensor, residual). prints: of the free tensors, as they follow from those that are observed.
        tolerance: None where the dump has taught none yet; the one used is returned."""
        self.observations = observations
        table = self._compare(self.candidates(prints), prints)
        best = [min(row.values()).residual for row in table.values() if row]
        used = tolerance or (learn(best) if best else LOOSEST)
        return self._accept(table, prints, used), used

    def candidates(self, prints: Mapping[str, Print]) -> dict[str, list[str]]:
        """tensor -> entries worth comparing: same size and a norm within the loosest tolerance, or a layout that crops padding."""
        by_size: dict[int, list[str]] = defaultdict(list)
        for name in sorted(prints, key=lambda n: prints[n].norm):
            by_size[prints[name].size].append(name)
        norms = {size: np.array([prints[n].norm for n in names]) for size, names in by_size.items()}
        marks = {size: np.array([prints[n].marks for n in names]) for size, names in by_size.items()}
        wanted: dict[str, list[str]] = defaultdict(list)
        slack = LOOSEST.fits / 2
        for entry, p in self.pool.entries.items():
            near: list[str] = []
            if p.size in by_size:
                low, high = np.searchsorted(norms[p.size], (p.norm / (1 + slack), p.norm / (1 - slack)), side="left")
                window = slice(int(low), int(high) + 1)
                off = np.abs(norms[p.size][window] / max(p.norm, 1e-30) - 1)
                off = off + np.abs(marks[p.size][window] - p.marks).sum(axis=1)
                near = [by_size[p.size][window.start + int(i)] for i in np.argsort(off, kind="stable")[:CANDIDATES]]
            padded = [
                n for size, names in by_size.items() if p.size / 2.5 < size < p.size for n in names
                if fixes(p.shape, prints[n].shape)
            ]  # fmt: skip
            for name in near + padded[: 4 * CANDIDATES]:
                wanted[name].append(entry)
        return wanted

    def _compare(self, wanted: Mapping[str, Sequence[str]], prints: Mapping[str, Print]) -> dict[str, dict[str, Nearness]]:
        """entry -> tensor -> how near it is under its best believable layout."""
        believed = self.votes.all_believed()
        pairs = {name: {e: (e, name, prints[name].digest) for e in entries} for name, entries in wanted.items()}
        fresh = {name: [e for e, key in row.items() if key not in self._compared] for name, row in pairs.items()}

        def hook(name: str, predicted: Value) -> Array | None:
            if not isinstance(predicted, Unavailable):
                for entry in fresh.get(name, ()):
                    got = self.fit(entry, name, predicted)
                    near = None if got is None else Nearness(got.residual, reorders(got.fix.label))
                    self._compared[pairs[name][entry]] = near
            return self.observations.value(name) if name in self.observations.placed else None

        if any(fresh.values()):
            self.engine.local(self.inputs, hook)
        table: dict[str, dict[str, Nearness]] = defaultdict(dict)
        for name, row in pairs.items():
            for entry, key in row.items():
                if (near := self._compared.get(key)) is not None:
                    table[entry][name] = near
        if self.votes.all_believed() != believed:
            self._compared.clear()
        return table

    def fit(self, entry: str, name: str, predicted: Array) -> Fit | None:
        """An entry of the pool as a tensor; None where no layout or the operator's own range speaks against it."""
        try:
            values = values_of(self.observations.entries[entry])
        except DumpError:
            return None
        got = fit(values, predicted, self.votes, LOOSEST, vote=True) if values is not None else None
        return got if got is not None and self._in_range(name, got) else None

    def _in_range(self, name: str, got: Fit) -> bool:
        node = self.graph.nodes[self.graph.producer[name]]
        low, high = RANGES.get(node.op, (-np.inf, np.inf))
        finite = got.values[np.isfinite(got.values)]
        if not finite.size:
            return True
        slack = 1e-3 * max(1e-6, float(np.abs(finite).max()))
        return bool(finite.min() >= low - slack and finite.max() <= high + slack)

    def _accept(
        self, table: Mapping[str, Mapping[str, Nearness]], prints: Mapping[str, Print], tolerance: Tolerance
    ) -> dict[str, tuple[str, float]]:
        rivals: dict[str, list[tuple[Nearness, str]]] = defaultdict(list)
        for entry, row in table.items():
            for name, near in row.items():
                rivals[name].append((near, entry))
        found: dict[str, tuple[str, float]] = {}
        taken: set[str] = set()
        for entry, row in sorted(table.items(), key=lambda item: (min(item[1].values()), item[0])):
            chosen = self._choose(row, prints, tolerance, taken)
            if chosen is None:
                continue
            mine = row[chosen]
            limit = max(BETTER * mine.residual, tolerance.tie)
            others = (near for near, other in rivals[chosen] if other != entry and other not in found)
            # of two entries that fit equally, the one in the tensor's own order of axes is the tensor
            if any(near.residual <= limit and near.moved <= mine.moved for near in others):
                continue
            found[entry] = (chosen, mine.residual)
            taken.add(chosen)
        return self._in_order(found)

    def _choose(
        self, row: Mapping[str, Nearness], prints: Mapping[str, Print], tolerance: Tolerance, taken: Collection[str]
    ) -> str | None:
        free = {n: near for n, near in row.items() if n not in taken}
        if not free:
            return None
        best = min(free, key=lambda n: free[n])
        r = free[best].residual
        if prints[best].size < SMALL and len(region(self.graph, best, self.observations).nodes) > NEAR:
            return None
        if r > tolerance.fits / 2 or bits(prints[best].size, r) < BITS:
            return None
        near = [n for n, x in row.items() if x.residual <= max(BETTER * r, tolerance.tie)]
        # a tensor and its transposition hold the same values: the one whose order of axes the entry has
        near = [n for n in near if not row[n].moved] or near
        if len({prints[n].digest for n in near}) > 1:
            return None
        # equal values all the way (Identity, Reshape, a Relu that does nothing): the deepest that is free
        return max((n for n in near if n in free), key=lambda n: self.graph.order[n], default=None)

    def _in_order(self, found: dict[str, tuple[str, float]]) -> dict[str, tuple[str, float]]:
        """Withdraw matches that break an order which nearly all others keep."""
        order = {e: o for e in found if (o := self.observations.entries[e].order) is not None}
        if len(order) < len(found) or len(found) < STRAY:
            return found
        line = sorted(found, key=lambda e: order[e])
        places = [self.graph.order[found[e][0]] for e in line]
        kept = longest_rising(places)
        if len(kept) < IN_ORDER * len(line):
            return found
        inside = set(kept)
        after = [len(self.graph.tensors)] * (len(line) + 1)  # the first place kept from here on
        for i in range(len(line) - 1, -1, -1):
            after[i] = places[i] if i in inside else after[i + 1]
        fine: dict[str, tuple[str, float]] = {}
        before = -1
        for i, entry in enumerate(line):
            if i in inside:
                before = places[i]
            if before - STRAY <= places[i] <= after[i] + STRAY:
                fine[entry] = found[entry]
        return fine


def longest_rising(values: Sequence[int]) -> list[int]:
    """Indices of a longest non-decreasing subsequence. O(n log n)."""
    tails: list[int] = []
    tail_values: list[int] = []
    before = [-1] * len(values)
    for i, v in enumerate(values):
        at = bisect_right(tail_values, v)
        before[i] = tails[at - 1] if at else -1
        if at == len(tails):
            tails.append(i)
            tail_values.append(v)
        else:
            tails[at], tail_values[at] = i, v
    found = []
    i = tails[-1] if tails else -1
    while i >= 0:
        found.append(i)
        i = before[i]
    return found[::-1]
