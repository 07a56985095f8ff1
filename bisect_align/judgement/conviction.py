"""After the score: is it the operator, the file, or the name? Consumers and the fusable chain are asked before anyone is convicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Observed, feeds_of, predict
from bisect_align.judgement.judge import APPEAL_REPLAYS, CONVICT, Judge, Judged
from bisect_align.judgement.trial import Score, try_region
from bisect_align.model.chain import above, below
from bisect_align.model.observed import ObservedGraph
from bisect_align.model.region import region
from bisect_align.result.result import Consumed, Kind

Array: TypeAlias = NDArray[Any]

CONSUMERS = 8  # consumers asked
CONSUMER_MIN = 8  # elements a consumer must have before it is evidence by a small margin
# Of fewer: evidence where one score is within noise and the other as large as this.
GLARING = 40.0
CLEARLY = 3.0  # how many times worse the other value must explain a consumer
FLIPS = 2.0  # the same, where the other value nearly acquits the consumer
# An entry that scores less as another tensor (this part of its score under its own name, and this more) is that tensor's value.
ALIAS_SHARE, ALIAS_ROOM = 0.2, 0.5


class Finding(StrEnum):
    """What a judged region turned out to be."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    UNKNOWN = "unknown"
    FAULT = "fault"
    FILE = "file"
    NAME = "name"
    ABSORBED = "absorbed"


@dataclass(frozen=True, slots=True)
class Ruling:
    """finding with what stands behind it. by: the consumers that decided; holds: for a wrong name, the tensor whose value it is.
    replaced: boundary tensors whose files were not believed."""

    tensor: str
    finding: Finding
    judged: Judged
    consumed: Consumed = Consumed.UNSEEN
    by: tuple[str, ...] = ()
    holds: str = ""
    replaced: tuple[str, ...] = ()


class Court:
    """Rules on observed tensors, each once.

    uncertain: tensors whose entry fitted no prediction or another name's; nobody is convicted on such a boundary if the replay in
    its place acquits. needs_consumer: tensors whose entry is only believed if something consumed it. turned: tensors whose entry may
    lie in another order of axes than it was read in; unless something consumed it as read, nobody is convicted on such a boundary.
    trusted: False where so much contradicts the model that names, model or inputs are to blame rather than operators; then nobody is
    convicted.
    """

    def __init__(
        self,
        judge: Judge,
        graph: ObservedGraph,
        *,
        uncertain: frozenset[str] = frozenset(),
        needs_consumer: frozenset[str] = frozenset(),
        turned: frozenset[str] = frozenset(),
        trusted: bool = True,
    ) -> None:
        self.judge, self.graph, self.uncertain, self.turned, self.trusted = judge, graph, uncertain, turned, trusted
        self.needs_consumer = needs_consumer | turned
        self._rulings: dict[str, Ruling] = {}

    def rule(self, tensor: str) -> Ruling:
        """The ruling on one tensor; its convicted parents are ruled on first (iteratively: chains may be long)."""
        waiting = [tensor]
        while waiting:
            name = waiting[-1]
            if name in self._rulings:
                waiting.pop()
                continue
            judged = self.judge.judge(name)
            if judged.convicted:
                above_it = [p for p in self.graph.parents[name] if p not in self._rulings and self.judge.judge(p).convicted]
                if above_it:
                    waiting += above_it
                    continue
            self._rulings[name] = self._rule(name, judged)
        return self._rulings[tensor]

    def _rule(self, tensor: str, judged: Judged) -> Ruling:
        if judged.score.unknown:
            return Ruling(tensor, Finding.UNKNOWN, judged)
        if not judged.convicted:
            return Ruling(tensor, Finding.SUSPECT if judged.suspect else Finding.HEALTHY, judged)
        override, replaced = self._disbelieved(tensor)
        if override:
            again = self.judge.retry(tensor, override=override, replays=APPEAL_REPLAYS)
            cleared = Judged(judged.region, again, judged.factor)
            # see _clearly_worse: on a replayed boundary even the right value may score a little beyond noise
            if cleared.value is None or (cleared.value <= FLIPS * CONVICT and again.kind is None):
                return Ruling(tensor, Finding.UNKNOWN if again.unknown else Finding.HEALTHY, cleared, replaced=replaced)
            judged = cleared
        if (shaky := self._shaky(tensor, override)) is not None:
            score = Score(None, note=f"follows from the replay of {shaky!r}, not from its entry")
            return Ruling(tensor, Finding.UNKNOWN, Judged(judged.region, score), replaced=(*replaced, shaky))
        if (turned := self._turned_above(tensor)) is not None:
            score = Score(None, note=f"reads {turned!r}, whose entry may lie in another order of axes")
            return Ruling(tensor, Finding.UNKNOWN, Judged(judged.region, score), replaced=replaced)
        ruling = self._consumption(tensor, judged, override, replaced)
        # an operator that was left out hands on the value of another tensor too: what was computed from it tells
        if ruling.consumed is not Consumed.YES and (holds := self._alias(tensor, judged)) is not None:
            finding = Finding.FILE if holds in self.judge.observed else Finding.NAME
            return Ruling(tensor, finding, judged, holds=holds, replaced=replaced)
        return ruling

    def _disbelieved(self, tensor: str) -> tuple[dict[str, Array], tuple[str, ...]]:
        """Replays to put in the place of parents whose files or names were not believed."""
        override: dict[str, Array] = {}
        for parent in self.graph.parents[tensor]:
            ruling = self._rulings.get(parent)
            if ruling is not None and ruling.finding in (Finding.FILE, Finding.NAME, Finding.ABSORBED):
                value = self.replayed(parent, ruling.replaced)
                if value is not None:
                    override[parent] = value
        return override, tuple(override)

    def _shaky(self, tensor: str, override: dict[str, Array]) -> str | None:
        """An uncertain boundary tensor whose replay in place of its entry acquits."""
        for parent in self.graph.parents[tensor]:
            if parent in self.uncertain and parent not in override and (value := self._replayed(parent, {})) is not None:
                again = self.judge.retry(tensor, override={**override, parent: value})
                if again.value is not None and again.kind is None and again.value < CONVICT:
                    return parent
        return None

    def _turned_above(self, tensor: str) -> str | None:
        """A boundary tensor whose order of axes is in doubt, and that nothing consumed as it was read."""
        doubtful = (p for p in self.graph.parents[tensor] if p in self.turned)
        return next((p for p in doubtful if p not in self._rulings or self._rulings[p].consumed is not Consumed.YES), None)

    def fed(self, tensor: str, replaced: tuple[str, ...] = ()) -> dict[str, Array]:
        """What the region reads: the target's own values, replays in the place of the tensors named (and of those that these were
        ruled without)."""
        ruled = {p: self._rulings[p].replaced if p in self._rulings else () for p in replaced}
        override = {p: value for p, without in ruled.items() if (value := self.replayed(p, without)) is not None}
        return feeds_of(self.judge.region(tensor), self.judge.observed, override)

    def replayed(self, tensor: str, replaced: tuple[str, ...] = ()) -> Array | None:
        """What the region should have made of its boundary, replays in the place of the tensors named; None where it cannot run."""
        return self._run(tensor, self.fed(tensor, replaced))

    def _replayed(self, tensor: str, override: Mapping[str, Array]) -> Array | None:
        return self._run(tensor, feeds_of(self.judge.region(tensor), self.judge.observed, override))

    def _run(self, tensor: str, feeds: Mapping[str, Array]) -> Array | None:
        got = predict(self.judge.bench, self.judge.region(tensor), feeds)
        return None if isinstance(got, Unavailable) else got

    def _alias(self, tensor: str, judged: Judged) -> str | None:
        """Another tensor of the chain whose value this entry is: one without an entry, or with one that fits nothing either (two
        files that are exchanged)."""
        score = judged.score.value
        if score is None or judged.score.kind is Kind.WRONG_SHAPE:
            return None
        limit = min(CONVICT, ALIAS_SHARE * score + ALIAS_ROOM)
        graph, observed, bench = self.judge.bench.graph, self.judge.observed, self.judge.bench
        value = observed.value(tensor)
        if not np.nan_to_num(value, posinf=0, neginf=0).any():
            return None  # zeros equal zeros and NaN equals NaN, wherever they stand
        for place in (*below(graph, tensor), *above(graph, tensor)):
            if place in observed and place not in self.uncertain:
                continue
            area = region(graph, place, _Without(observed, tensor))
            if not area.boundary or tensor in area.boundary:
                continue
            feeds = feeds_of(area, observed, {})
            predicted = predict(bench, area, feeds)
            if isinstance(predicted, Unavailable) or predicted.shape != value.shape or predicted.dtype != value.dtype:
                continue
            other = try_region(bench, area, feeds, value, self.judge.precision)
            if other.value is not None and other.kind is None and other.value < limit:
                return place
        return None

    def _consumption(self, tensor: str, judged: Judged, override: Mapping[str, Array], replaced: tuple[str, ...]) -> Ruling:
        if not self.trusted:
            return Ruling(tensor, Finding.SUSPECT, judged, replaced=replaced)
        right = self._replayed(tensor, override)
        sizes = {c: self.judge.observed.value(c).size for c in self.graph.children[tensor]}
        large = [c for c, size in sizes.items() if size >= CONSUMER_MIN]
        small = [c for c, size in sizes.items() if 0 < size < CONSUMER_MIN]
        asked = [*large, *small][:CONSUMERS]
        ate: list[str] = []
        refused: list[str] = []
        if right is not None:
            for child in asked:
                scores = self.judge.raw(child).value, self.judge.retry(child, override={tensor: right}).value
                if scores == (None, None) or (child in small and None in scores):
                    continue
                factor = self.judge.factor(child)
                dumped, replayed = (np.inf if s is None else s / factor for s in scores)
                if child in small and (min(dumped, replayed) > 1 or max(dumped, replayed) < GLARING):
                    continue
                if _clearly_worse(replayed, dumped):
                    ate.append(child)
                elif _clearly_worse(dumped, replayed):
                    refused.append(child)
        if ate:
            return Ruling(tensor, Finding.FAULT, judged, Consumed.YES, tuple(ate), replaced=replaced)
        if refused:
            return Ruling(tensor, Finding.FILE, judged, Consumed.NO, tuple(refused), replaced=replaced)
        if self.judge.precision.stepped and judged.score.statistic == "clip" and large:
            return Ruling(tensor, Finding.ABSORBED, judged, by=tuple(large[:CONSUMERS]), replaced=replaced)
        if tensor in self.needs_consumer:
            return Ruling(tensor, Finding.SUSPECT, judged, replaced=replaced)
        return Ruling(tensor, Finding.FAULT, judged, replaced=replaced)


def _clearly_worse(one: float, other: float) -> bool:
    """Would the first score convict, and the second explain so much better that the two do not come from noise?

    A replay in the place of an entry lacks what the target itself introduced there, so that even the right one may score a little
    beyond noise.
    """
    return one > CONVICT and (one > CLEARLY * other or (other <= FLIPS * CONVICT and one > FLIPS * other))


class _Without:
    """The observed tensors but for one."""

    def __init__(self, observed: Observed, tensor: str) -> None:
        self._observed, self._tensor = observed, tensor

    def __contains__(self, name: object) -> bool:
        return name != self._tensor and name in self._observed
