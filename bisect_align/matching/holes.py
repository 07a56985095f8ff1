"""Holes in a dump without names: the entry of a faulty operator fits no prediction, and nothing below it does either.

Feed a free entry to a tensor it could be, and see whether what follows explains other free entries. The hypothesis that explains most
wins, if no rival explains what it does not; its entry is then placed, though it fits no prediction: others were computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Golden, Unavailable
from bisect_align.matching.byvalue import ByValue, Pool, values_of
from bisect_align.matching.fit import BITS, BITS_ELEMENTS, LOOSEST, Tolerance, bits, fit
from bisect_align.matching.lookaround import Settled
from bisect_align.matching.observations import Observations
from bisect_align.matching.prints import fingerprint
from bisect_align.model.chain import above
from bisect_align.model.graph import Graph
from bisect_align.model.region import region

Array: TypeAlias = NDArray[Any]

BUDGET = 3000  # local replays a dump
AHEAD = 24  # tensors that an entry is tried at
BELOW = 8  # tensors below a hypothesis whose predictions are compared
EXPLAINED_MIN = 2  # entries that a hypothesis must explain (one may be an accident)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Entry `entry` is tensor `tensor`; then `explains` follow (entry -> tensor)."""

    entry: str
    tensor: str
    explains: Mapping[str, str]


class Holes:
    """Searches one hole at a time. spent: replays so far; gave_up: the budget ended before the search did."""

    def __init__(
        self, graph: Graph, engine: Golden, observations: Observations, steering: frozenset[str], sizes: Mapping[str, int]
    ) -> None:
        self.graph, self.engine, self.observations, self.steering, self.sizes = graph, engine, observations, steering, sizes
        self.spent = 0
        self.gave_up = False

    def find(self, pool: Pool, matcher: ByValue, tolerance: Tolerance) -> Hypothesis | None:
        """The best-supported place of a free entry, or None where nothing or nothing clear is found.

        Entries are tried in file order: above the first one that a fault has changed, all others were matched.
        """
        order = {e: o for e in pool.entries if (o := self.observations.entries[e].order) is not None}
        for entry in sorted(pool.entries, key=lambda e: (order.get(e, np.inf), e)):
            found: list[Hypothesis] = []
            for tensor in self._places(pool, entry):
                if self.spent >= BUDGET:
                    self.gave_up = True
                    return None
                explains = self._explains(pool, matcher, entry, tensor, tolerance)
                if len(explains) >= EXPLAINED_MIN:
                    found.append(Hypothesis(entry, tensor, explains))
            if (clear := self._clear(found)) is not None:
                return clear
        return None

    def _clear(self, found: Sequence[Hypothesis]) -> Hypothesis | None:
        """The hypothesis that explains most, if no rival explains anything else. Of places along one chain that explain the same
        (what a Relu gets and what it gives), the deepest: its region holds them all."""
        if not found:
            return None
        best = max(found, key=lambda h: (len(h.explains), self.graph.order[h.tensor]))
        mine = set(best.explains.items())
        chain = set(above(self.graph, best.tensor))
        for rival in found:
            same = rival.entry == best.entry and rival.tensor in chain
            theirs = {(e, t) for e, t in rival.explains.items() if not (same and t == best.tensor)}
            if rival is not best and not (theirs <= mine if same else theirs < mine):
                return None
        return best

    def _places(self, pool: Pool, entry: str) -> list[str]:
        """Free tensors of the entry's size, between those whose entries stand before and after it in the dump."""
        size = pool.entries[entry].size
        low, high = self._bounds(self.observations.entries[entry].order)
        found = []
        for tensor in self.graph.tensors[low:high]:
            if self.sizes.get(tensor) == size and tensor not in self.observations.placed and tensor not in self.steering:
                found.append(tensor)
        return found[:AHEAD]

    def _bounds(self, mine: int | None) -> tuple[int, int]:
        """Graph order between the settled tensors whose entries come just before and just after in the dump (all of it, where
        the dump keeps no order)."""
        low, high = 0, len(self.graph.tensors)
        if mine is None:
            return low, high
        before = after = None
        for name, seen in self.observations.placed.items():
            order = self.observations.entries[seen.claim.entry].order
            if order is None:
                continue
            if order < mine and (before is None or order > before):
                before, low = order, self.graph.order[name]
            if order > mine and (after is None or order < after):
                after, high = order, self.graph.order[name]
        return (low, high) if low < high else (0, len(self.graph.tensors))

    def _explains(self, pool: Pool, matcher: ByValue, entry: str, tensor: str, tolerance: Tolerance) -> dict[str, str]:
        """Free entries that follow from feeding the entry to the tensor: entry -> tensor."""
        own = self._prediction(tensor, {})
        values = values_of(self.observations.entries[entry])
        if own is None or values is None:
            return {}
        laid = fit(values, own, matcher.votes, LOOSEST)
        if laid is None:
            return {}
        found: dict[str, str] = {}
        for name in self._below(tensor):
            predicted = self._prediction(name, {tensor: laid.values.astype(own.dtype)})
            p = fingerprint(predicted) if predicted is not None else None
            if predicted is None or p is None or p.size < BITS_ELEMENTS / 4:
                continue
            for other, q in pool.entries.items():
                if other == entry or other in found or q.size != p.size or abs(q.norm - p.norm) > LOOSEST.fits / 2 * p.norm:
                    continue
                got = matcher.fit(other, name, predicted)
                if got is not None and got.residual <= tolerance.fits / 4 and bits(p.size, got.residual) >= BITS:
                    found[other] = name
                    break
        return found

    def _below(self, tensor: str) -> list[str]:
        """Free tensors below, nearest first."""
        found: list[str] = []
        frontier = [tensor]
        seen = {tensor}
        while frontier and len(found) < BELOW:
            following = sorted(
                {m for t in frontier for i in self.graph.consumers.get(t, ()) for m in self.graph.nodes[i].makes} - seen
            )
            seen |= set(following)
            frontier = [m for m in following if m not in self.observations.placed and m not in self.steering]
            found += frontier
        return found[:BELOW]

    def _prediction(self, name: str, given: Mapping[str, Array]) -> Array | None:
        area = region(self.graph, name, Settled(self.observations, given))
        if given and not set(given) & set(area.boundary):
            return None
        self.spent += 1
        feeds = {b: given[b] if b in given else self.observations.value(b) for b in area.boundary}
        got = self.engine.replay(area.nodes, feeds, [name])[name]
        return None if isinstance(got, Unavailable) else got
