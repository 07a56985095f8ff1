"""Predictions beside the pass: along the fusable chain of a tensor, and from entries that are not settled themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from numpy.typing import NDArray

from bisect_align.golden.protocol import Golden, Unavailable
from bisect_align.matching.fit import Fit, Tolerance, Votes, carries_evidence, fit
from bisect_align.matching.observations import Observation, Observations
from bisect_align.model.chain import above, below
from bisect_align.model.graph import Graph
from bisect_align.model.region import Region, region

Array: TypeAlias = NDArray[Any]

REPLAY_MAX = 64  # nodes that one look may cost


class Around:
    """Asks the engine for single tensors, from what is settled so far and from values given for the occasion."""

    def __init__(self, graph: Graph, engine: Golden, observations: Observations) -> None:
        self.graph, self.engine, self.observations = graph, engine, observations

    def predict(self, name: str, given: Mapping[str, Array]) -> Array | None:
        """The tensor computed from the nearest settled or given tensors above it; None where that is far, or cannot run."""
        return self._predict(region(self.graph, name, Settled(self.observations, given)), [name], given).get(name)

    def chain(self, name: str, predicted: Array, taken: Collection[str]) -> dict[str, Array]:
        """Predictions of the tensors above and below `name` in its fusable chain, of equal size, as far as none has an entry
        (taken) of its own. One replay each way: the deepest of a chain is computed through the others."""
        found: dict[str, Array] = {}
        lower = list(takewhile(lambda place: place not in taken, below(self.graph, name)))
        if lower:
            given = {name: predicted}
            found |= self._predict(region(self.graph, lower[-1], Settled(self.observations, given)), lower, given)
        # what the target returns as an output is its output: nothing below could tell a dropped operator from another name
        upper = [place for place in above(self.graph, name) if place not in taken and place not in self.observations]
        if upper and name not in self.graph.outputs:
            found |= self._predict(region(self.graph, name, self.observations), upper, {})
        return {place: value for place, value in found.items() if value.size == predicted.size}

    def _predict(self, area: Region, wanted: Sequence[str], given: Mapping[str, Array]) -> dict[str, Array]:
        """Those of the wanted tensors that the region makes and that can be had."""
        made = {m for i in area.nodes for m in self.graph.nodes[i].makes}
        inside = [name for name in wanted if name in made]
        if len(area.nodes) > REPLAY_MAX or not inside:
            return {}
        feeds = {b: given[b] if b in given else self.observations.value(b) for b in area.boundary}
        got = self.engine.replay(area.nodes, feeds, inside)
        return {name: value for name, value in got.items() if not isinstance(value, Unavailable)}


class Pending:
    """Entries under weak names that fit nothing, or that hold the value of a tensor above: taken at their word only where another
    entry follows from their value."""

    def __init__(self, around: Around, votes: Votes) -> None:
        self.around, self.votes = around, votes
        self.seen: dict[str, Observation] = {}

    def explain(self, name: str, raw: Array, tolerance: Tolerance, *, vote: bool = False) -> tuple[Fit, tuple[str, ...]] | None:
        """The fit of an entry as `name` where pending values are fed, and the pending entries that it proves. vote: let it vote
        for its layout."""
        if not self.seen:
            return None
        observations = self.around.observations
        area = region(self.around.graph, name, Settled(observations, self.seen))
        leaned = [b for b in area.boundary if b in self.seen and b not in observations.placed]
        if not leaned:
            return None
        predicted = self.around.predict(name, {b: observations.read(self.seen[b]) for b in leaned})
        got = fit(raw, predicted, self.votes, tolerance) if predicted is not None else None
        if predicted is None or got is None or got.residual > tolerance.fits or not carries_evidence(got.values):
            return None
        if vote:
            fit(raw, predicted, self.votes, tolerance, vote=True)
        return got, tuple(self.seen[b].claim.entry for b in leaned)


class Settled:
    """The observed tensors together with some more."""

    def __init__(self, observations: Observations, extra: Collection[str]) -> None:
        self._observations, self._extra = observations, extra

    def __contains__(self, name: object) -> bool:
        return name in self._extra or name in self._observations
