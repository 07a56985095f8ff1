"""The judge of a run: raw scores softened by what the run's own healthy regions show, appeals, and who is convicted.

A chip may be noisier than its format in one kernel family (Winograd, half accumulation, look-up tables). Regions of the same class are
peers; the median of the others' scores is what is normal for this chip. Scores are memoised: asking for one region gives the same
figures as judging all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Bench, Observed, feeds_of
from bisect_align.judgement.precision import Precision
from bisect_align.judgement.trial import REPLAYS, Score, try_region
from bisect_align.model.graph import Graph
from bisect_align.model.operators import CONVOLUTIONS, MATRIX, MOVES
from bisect_align.model.region import Region, region
from bisect_align.result.result import Kind

Array: TypeAlias = NDArray[Any]

CONVICT = 2.0  # threshold tau
SUSPECT = 1.25
APPEAL_FROM, APPEAL_TO, APPEAL_REPLAYS = 0.6 * CONVICT, 40.0, 32
PEERS_MIN, PEERS_MAX, PEER_SCORE_MIN = 3, 64, 0.02
NORMAL = 0.4  # median score of a class that needs no softening
CAP, CAP_CONV = 3.0, 8.0  # a larger cap would swallow faults that hit every operator of a class
WINOGRAD, LONE_CONV3 = ("3x3", "3x3x3"), 3.0  # such a Conv with few peers: a Winograd kernel cannot be excluded


@dataclass(frozen=True, slots=True)
class Judged:
    """score: raw figures; factor: what peers soften it by; value: raw / factor (None = could not be judged)."""

    region: Region
    score: Score
    factor: float = 1.0

    @property
    def value(self) -> float | None:
        return None if self.score.value is None else self.score.value / self.factor

    @property
    def convicted(self) -> bool:
        if self.score.kind is not None:
            return True
        return self.value is not None and self.value > CONVICT

    @property
    def suspect(self) -> bool:
        return not self.convicted and self.value is not None and self.value > SUSPECT

    @property
    def hides(self) -> float:
        """The largest relative L2 error that would not be convicted here: spread like the noise, or too small to matter. Of equal
        values 0; of integers all that near-ties excused."""
        if self.score.statistic in ("exact", "flips", "shape", "non-finite"):
            return 0.0 if self.convicted else self.score.introduced
        return max(CONVICT * self.factor * self.score.expected * self.score.reach, self.score.floor)


def class_of(graph: Graph, index: int) -> tuple[str, ...] | None:
    """The kernel family of a node: its operator, Conv by kernel shape too; None for operators that only move values."""
    node = graph.nodes[index]
    if node.op in MOVES:
        return None
    if node.op in CONVOLUTIONS:
        weight = node.inputs[1] if len(node.inputs) > 1 else ""
        known = graph.types[weight].shape if weight in graph.types else None
        kernel = "x".join(map(str, known[2:])) if known else "?"
        return (node.op, kernel)
    return (node.op,)


def sample(names: Sequence[str], size: int) -> list[str]:
    """Evenly spaced members, first and last included: the same whichever of them is asked about."""
    if len(names) <= size:
        return list(names)
    return [names[round(i * (len(names) - 1) / (size - 1))] for i in range(size)]


class Judge:
    """Judges observed regions at one precision. `observed` yields the target's values; nothing is kept but scores."""

    def __init__(self, bench: Bench, observed: Observed, tensors: tuple[str, ...], precision: Precision) -> None:
        self.bench, self.observed, self.tensors, self.precision = bench, observed, tensors, precision
        self._raw: dict[tuple[str, int], Score] = {}
        self._regions: dict[str, Region] = {}
        self._told: dict[tuple[str, ...], list[float]] = {}

    def region(self, tensor: str) -> Region:
        if tensor not in self._regions:
            self._regions[tensor] = region(self.bench.graph, tensor, self.observed)
        return self._regions[tensor]

    def raw(self, tensor: str, replays: int = REPLAYS) -> Score:
        key = (tensor, replays)
        if key not in self._raw:
            score = self.retry(tensor, replays=replays)
            if self.region(tensor).settled and self._shaped_otherwise(tensor, score):
                self._regions[tensor] = region(self.bench.graph, tensor, self.observed, through_shapes=True)
                score = self.retry(tensor, replays=replays)
            self._raw[key] = score
        return self._raw[key]

    def retry(
        self, tensor: str, *, override: Mapping[str, Array] | None = None, target: Array | None = None, replays: int = REPLAYS
    ) -> Score:
        """A raw score with other boundary values or another target value than those observed."""
        area = self.region(tensor)
        feeds = feeds_of(area, self.observed, override or {})
        value = self.observed.value(tensor) if target is None else target
        return try_region(self.bench, area, feeds, value, self.precision, replays)

    def _shaped_otherwise(self, tensor: str, score: Score) -> bool:
        """Whether the shapes that the region is settled by may not be those of the target: it cannot be replayed on them, makes another
        shape (who computes it may be at fault), or is beyond noise and the target's own tensors lend other ones."""
        if score.unknown or score.kind is Kind.WRONG_SHAPE:
            return True
        if score.kind is None and (score.value or 0.0) <= SUSPECT:
            return False
        bench, settled = self.bench, self.region(tensor).settled
        whole = region(bench.graph, tensor, self.observed, through_shapes=True)
        made = bench.engine.replay(whole.nodes, feeds_of(whole, self.observed, {}), settled)
        return any(isinstance(v, Unavailable) or not np.array_equal(v, bench.graph.constant(n)) for n, v in made.items())

    def judge(self, tensor: str) -> Judged:
        """The final word on one observed tensor; appealed where it is close."""
        score = self.raw(tensor)
        area = self.region(tensor)
        if score.value is None or score.fixed:
            return Judged(area, score)
        factor = self.factor(tensor)
        if APPEAL_FROM < score.value / factor < APPEAL_TO and score.statistic != "gate":
            score = self.raw(tensor, APPEAL_REPLAYS)
        if score.kind is Kind.PRECISION_LOSS and score.value is not None:
            score = replace(score, value=max(score.value, CONVICT * factor))
        return Judged(area, score, factor)

    def classes(self, tensor: str) -> set[tuple[str, ...]]:
        graph = self.bench.graph
        return {c for i in self.region(tensor).nodes if (c := class_of(graph, i)) is not None}

    def factor(self, tensor: str) -> float:
        """clamp(largest median of the peers of any of its classes / 0.4, 1, cap). What may be a Winograd kernel, since its peers are
        too few or noisier than normal, is softened by 3 at least: that noise differs from layer to layer."""
        mine = self.classes(tensor)
        # in bf16 and int8 such a kernel would lose too much to be of use
        fast = not self.precision.stepped and self.precision.name != "bf16"
        cap = CAP_CONV if fast and any(c[0] in CONVOLUTIONS for c in mine) else CAP
        factor = 1.0
        for c in mine:
            median = self._peers_median(c, tensor)
            factor = max(factor, (median or 0.0) / NORMAL)
            if (median is None or median > NORMAL) and fast and c[0] in CONVOLUTIONS and c[1] in WINOGRAD:
                factor = max(factor, LONE_CONV3)
        return min(factor, cap)

    @cached_property
    def _members(self) -> dict[tuple[str, ...], list[str]]:
        """Class -> tensors whose regions are asked what is normal for it."""
        members: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in self.tensors:
            for c in self.classes(name):
                members[c].append(name)
        return {c: sample(names, PEERS_MAX) for c, names in members.items()}

    def _peers_median(self, c: tuple[str, ...], tensor: str) -> float | None:
        """Median of what the others of a class tell; None where too few do. The class is sorted once, so that judging n regions
        does not cost n squared."""
        members = self._members.get(c, [])  # a region that was widened for its shapes may have a class that no other has
        if c not in self._told:
            self._told[c] = sorted(v for n in members if (v := self._telling(n)) is not None)
        told = self._told[c]
        own = self._telling(tensor) if tensor in members else None
        count = len(told) - (own is not None)
        if count < PEERS_MIN:
            return None
        skip = len(told) if own is None else bisect_left(told, own)
        low, high = (told[i + (i >= skip)] for i in ((count - 1) // 2, count // 2))
        return (low + high) / 2

    def _telling(self, tensor: str) -> float | None:
        """A raw score that says something about its class."""
        score = self.raw(tensor)
        return None if score.fixed or score.value is None or score.value <= PEER_SCORE_MIN else score.value

    def computes(self, tensor: str) -> bool:
        """True where the region computes something: only these say anything about the precision."""
        return bool(self.classes(tensor))

    def families(self, tensor: str) -> set[str]:
        """The matrix operators in the region."""
        return {c[0] for c in self.classes(tensor)} & MATRIX

    def multiplies(self, tensor: str) -> bool:
        """True where the region computes with matrices of weights and nothing else."""
        found = {c[0] for c in self.classes(tensor)}
        return bool(found) and found <= MATRIX
