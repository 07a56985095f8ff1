"""The judge of a run: raw scores softened by what the run's own healthy regions show, appeals, and who is convicted.

A chip may be noisier than its format in one kernel family (Winograd, half accumulation, look-up tables). Regions of the same class are
peers; the median of the others' scores is what is normal for this chip. Scores are memoised: asking for one region gives the same
figures as judging all.
"""

from __future__ import annotations

import statistics as stats
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from numpy.typing import NDArray

from bisect_align.judgement.precision import Precision
from bisect_align.judgement.trial import Bench, Observed, Score, feeds_of, try_region
from bisect_align.model.graph import Graph
from bisect_align.model.operators import MATRIX, MOVES
from bisect_align.model.region import Region, region
from bisect_align.result.result import Kind

Array: TypeAlias = NDArray[Any]

CONVICT = 2.0  # threshold tau
SUSPECT = 1.25
APPEAL_FROM, APPEAL_TO, APPEAL_REPLAYS = 0.6 * CONVICT, 40.0, 32
PEERS_MIN, PEER_SCORE_MIN = 3, 0.02
NORMAL = 0.4  # median score of a class that needs no softening
CAP, CAP_CONV = 3.0, 8.0  # a larger cap would swallow faults that hit every operator of a class
LONE_CONV3 = 3.0  # a 3x3 Conv with few peers: Winograd cannot be excluded


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
        """The largest relative L2 error that noise could hide here."""
        return CONVICT * self.factor * self.score.expected


def class_of(graph: Graph, index: int) -> tuple[str, ...] | None:
    """The kernel family of a node: its operator, Conv by kernel shape too; None for operators that only move values."""
    node = graph.nodes[index]
    if node.op in MOVES:
        return None
    if node.op in ("Conv", "ConvTranspose"):
        weight = node.inputs[1] if len(node.inputs) > 1 else ""
        known = graph.types[weight].shape if weight in graph.types else None
        kernel = "x".join(map(str, known[2:])) if known else "?"
        return (node.op, kernel)
    return (node.op,)


class Judge:
    """Judges observed regions at one precision. `observed` yields the target's values; nothing is kept but scores."""

    def __init__(self, bench: Bench, observed: Observed, tensors: tuple[str, ...], precision: Precision) -> None:
        self.bench, self.observed, self.tensors, self.precision = bench, observed, tensors, precision
        self._raw: dict[tuple[str, int], Score] = {}
        self._regions: dict[str, Region] = {}
        self._members: dict[tuple[str, ...], list[str]] | None = None

    def region(self, tensor: str) -> Region:
        if tensor not in self._regions:
            self._regions[tensor] = region(self.bench.graph, tensor, self.observed)
        return self._regions[tensor]

    def raw(self, tensor: str, replays: int = 8) -> Score:
        key = (tensor, replays)
        if key not in self._raw:
            self._raw[key] = self.retry(tensor, replays=replays)
        return self._raw[key]

    def retry(
        self, tensor: str, *, override: Mapping[str, Array] | None = None, target: Array | None = None, replays: int = 8
    ) -> Score:
        """A raw score with other boundary values or another target value than those observed."""
        area = self.region(tensor)
        feeds = feeds_of(area, self.observed, override or {})
        value = self.observed.value(tensor) if target is None else target
        return try_region(self.bench, area, feeds, value, self.precision, replays)

    def judge(self, tensor: str) -> Judged:
        """The final word on one observed tensor; appealed where it is close."""
        area = self.region(tensor)
        score = self.raw(tensor)
        if score.unknown or score.fixed:
            return Judged(area, score)
        factor = self.factor(tensor)
        assert score.value is not None
        if APPEAL_FROM < score.value / factor < APPEAL_TO and score.statistic != "gate":
            score = self.raw(tensor, APPEAL_REPLAYS)
        if score.kind is Kind.PRECISION_LOSS and score.value is not None:
            score = replace(score, value=max(score.value, CONVICT * factor))
        return Judged(area, score, factor)

    def classes(self, tensor: str) -> set[tuple[str, ...]]:
        graph = self.bench.graph
        return {c for i in self.region(tensor).nodes if (c := class_of(graph, i)) is not None}

    def factor(self, tensor: str) -> float:
        """clamp(largest median of the peers of any of its classes / 0.4, 1, cap)."""
        if self._members is None:
            self._members = defaultdict(list)
            for name in self.tensors:
                for c in self.classes(name):
                    self._members[c].append(name)
        mine = self.classes(tensor)
        convolves = any(c[0] in ("Conv", "ConvTranspose") for c in mine)
        cap = CAP_CONV if convolves and not self.precision.stepped and self.precision.name != "bf16" else CAP
        factor = 1.0
        for c in mine:
            peers = [s.value for n in self._members[c] if n != tensor and (s := self.raw(n)).value is not None and not s.fixed]
            informative = [v for v in peers if v is not None and v > PEER_SCORE_MIN]
            if len(informative) >= PEERS_MIN:
                factor = max(factor, stats.median(informative) / NORMAL)
            elif c[0] in ("Conv", "ConvTranspose") and c[1] in ("3x3", "3x3x3"):
                factor = max(factor, LONE_CONV3)
        return min(factor, cap)

    def computes(self, tensor: str) -> bool:
        """True where the region computes something: only these say anything about the precision."""
        return bool(self.classes(tensor))

    def multiplies(self, tensor: str) -> bool:
        """True where the region computes with matrices of weights and nothing else."""
        found = self.classes(tensor)
        return bool(found) and all(c[0] in MATRIX for c in found)
