"""The search of one run: match, infer the precision, bisect, judge. All findings are kept here, also where the run is interrupted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.errors import DumpError
from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.conviction import Court, Finding, Ruling
from bisect_align.judgement.inference import Inferred, infer
from bisect_align.judgement.judge import Judge
from bisect_align.judgement.policy import beyond, state_of
from bisect_align.judgement.precision import FP16, FP32, LADDER, PRECISIONS, Precision
from bisect_align.judgement.shadow import NoiseLevel, accumulated_noise
from bisect_align.judgement.trial import Bench
from bisect_align.matching.matcher import Matched, Matcher
from bisect_align.matching.observations import Observations, Status
from bisect_align.metrics.measure import measure
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph
from bisect_align.model.observed import ObservedGraph, observe
from bisect_align.model.operators import QUANTISING
from bisect_align.result.result import Figures, SearchInfo, State
from bisect_align.search.answer import Crossing, crossings
from bisect_align.search.bisection import Bisection
from bisect_align.session.case import CACHE_SHARE, Case, nothing_matched
from bisect_align.session.golden import Foreign, GoldenValues
from bisect_align.session.progress import Progress

Array: TypeAlias = NDArray[Any]

# Entries that fitted no prediction, or that of another tensor than they are named after.
UNCERTAIN = (Status.UNSUPPORTED, Status.ALIAS, Status.NAME_ONLY)


@dataclass(frozen=True, slots=True)
class Compared:
    """State of one observed tensor against the golden."""

    state: State
    reason: str
    figures: Figures | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the dump says, once it is matched: the values, the observed graph, the precision, the noise, and the court to rule by."""

    matched: Matched
    observations: Observations
    observed: ObservedGraph
    precision: Inferred
    noise: dict[str, NoiseLevel]
    court: Court


@dataclass(slots=True)
class Findings:
    """What a run knows so far. full: every observed region was ruled on."""

    evidence: Evidence | None = None
    compared: dict[str, Compared] = field(default_factory=dict)
    rulings: dict[str, Ruling] = field(default_factory=dict)
    crossings: tuple[Crossing, ...] = ()
    golden_suspect: tuple[str, ...] = ()
    full: bool = False
    rounds: int = 0
    passes: int = 0


class Hunt:
    """Runs the questions of a case in their order; `findings` holds the answers."""

    def __init__(self, case: Case, progress: Progress) -> None:
        self.case, self.progress = case, progress
        self.findings = Findings()
        graph, engine = case.model.graph, case.engine
        foreign = Foreign(case.options, graph) if case.options.golden_dump else None
        self.golden = GoldenValues(graph, engine, case.inputs.values, case.memory // (2 * CACHE_SHARE), foreign)
        self.bench = Bench(graph, engine, self.golden.range, self.golden.value, case.model.sha256)

    @property
    def evidence(self) -> Evidence:
        """What the dump says. Raises RuntimeError before it was matched."""
        if self.findings.evidence is None:
            raise RuntimeError("the dump has not been matched")
        return self.findings.evidence

    def run(self) -> None:
        """All stages. Raises BisectAlignError; what was found until then stays in `findings`."""
        if any(check.differs for check in self.case.checks):
            return
        self.findings.evidence = self._gather()
        if self.case.options.scan:
            self._scan()
        else:
            self._search()
        if self.golden.foreign is not None:
            self._doubt_golden()

    # --- stages -----------------------------------------------------------------------------------------------------------

    def _gather(self) -> Evidence:
        """Match the dump, infer its precision, measure what that explains."""
        case, graph = self.case, self.case.model.graph
        self.progress.stage("matching")
        matcher = Matcher(graph, case.engine, case.inputs.values, case.catalogue.entries, case.claims, case.memory // CACHE_SHARE)
        matched = matcher.match()
        if not matched.placed:
            raise nothing_matched(case, dict(matched.dropped))
        observed = observe(graph, matched.placed)
        self.progress.stage("precision")
        judges: dict[str, Judge] = {}

        def judge_at(precision: Precision) -> Judge:
            if precision.name not in judges:
                judges[precision.name] = Judge(self.bench, matcher.observations, observed.order, precision)
            return judges[precision.name]

        if case.options.precision != "auto":
            precision = Inferred(PRECISIONS[case.options.precision], "given by the user", True)
        else:
            precision = infer(judge_at, observed.order, candidates(graph))
        if not precision.fitted:
            case.warnings.append(f"the precision is not certain, judged as {precision.precision.name} ({precision.evidence})")
        placed = matched.placed.items()
        court = Court(
            judge_at(precision.precision),
            observed,
            uncertain=frozenset(t for t, o in placed if o.status in UNCERTAIN),
            needs_consumer=frozenset(t for t, o in placed if o.claim.weak and o.status is Status.UNSUPPORTED),
        )
        self.progress.stage("noise")
        noise = accumulated_noise(self.bench, case.inputs.values, observed.order, precision.precision)
        return Evidence(matched, matcher.observations, observed, precision, noise, court)

    def _search(self) -> None:
        """Bisect while something deep is BAD; judge the crossing, then its ancestors, nearest first; else judge everything."""
        graph = self.evidence.observed
        search = Bisection(graph)
        self.progress.stage("searching")
        while asked := search.ask():
            self.compare(asked, keep=True)
            self.findings.passes += 1
            for tensor in asked:
                search.tell(tensor, self.findings.compared[tensor].state)
        self.findings.rounds = search.rounds
        answer = search.answer
        if isinstance(answer, Crossing):
            self.findings.crossings = (answer,)
            for tensor in upwards(graph, answer.tensor):
                if self._rule(tensor).finding is Finding.FAULT:
                    return
        self._scan()

    def _scan(self) -> None:
        """Rule on every observed region, and compare every observed tensor."""
        order = self.evidence.observed.order
        self.progress.stage("judging", len(order))
        for tensor in order:
            self._rule(tensor)
            self.progress.advance()
        self.compare(order)
        states = {t: c.state for t, c in self.findings.compared.items()}
        self.findings.crossings = crossings(self.evidence.observed, states)
        self.findings.full = True

    def _rule(self, tensor: str) -> Ruling:
        if tensor not in self.findings.rulings:
            self.findings.rulings[tensor] = self.evidence.court.rule(tensor)
        return self.findings.rulings[tensor]

    def compare(self, tensors: Collection[str], *, keep: bool = False) -> None:
        """States of observed tensors against the golden. keep: start later golden passes from those that are GOOD."""
        todo = [t for t in tensors if t not in self.findings.compared]
        if not todo:
            return
        for tensor, golden in self.golden.stream(todo):
            found = self._state(tensor, golden)
            self.findings.compared[tensor] = found
            if keep and found.state is State.GOOD and self.golden.foreign is None and not isinstance(golden, Unavailable):
                self.golden.keep(tensor, golden)

    def _state(self, tensor: str, golden: Array | Unavailable) -> Compared:
        if isinstance(golden, Unavailable):
            return Compared(State.UNKNOWN, golden.reason)
        try:
            target = self.evidence.observations.value(tensor)
        except DumpError as trouble:
            return Compared(State.UNKNOWN, str(trouble))
        if target.shape != golden.shape:
            return Compared(State.BAD, f"shape {target.shape}, the golden has {golden.shape}")
        figures = measure(golden, target)
        noise, precision = self.evidence.noise.get(tensor), self.evidence.precision.precision.name
        state, reason = state_of(figures, noise, self.case.policy, precision, discrete=not is_float(golden.dtype))
        return Compared(state, reason, figures)

    def _doubt_golden(self) -> None:
        """A foreign golden is suspect where ONNX Runtime's own golden sides with the target."""
        bad = [t for t, c in self.findings.compared.items() if c.state is State.BAD]
        if bad:
            sided = (tensor for tensor, own in self.golden.own(bad) if self._state(tensor, own).state is State.GOOD)
            self.findings.golden_suspect = tuple(sided)

    # --- what the verdict asks ------------------------------------------------------------------------------------------------

    def beyond(self) -> tuple[str, ...]:
        """Outputs (or, where the dump holds none, the deepest tensors) that noise or the user's thresholds do not cover."""
        compared, limits = self.findings.compared, self.case.policy.thresholds
        outputs = [t for t in self.case.model.graph.outputs if t in compared]
        found = []
        for tensor in outputs or [t for t in self.evidence.observed.deepest if t in compared]:
            figures = compared[tensor].figures
            missed = bool(outputs and figures is not None and limits and beyond(figures, limits))
            if compared[tensor].state is State.BAD or missed:
                found.append(tensor)
        return tuple(found)

    def info(self) -> SearchInfo:
        """What the search cost so far."""
        findings = self.findings
        replays = self.case.engine.counters.replays
        return SearchInfo(findings.rounds, findings.passes, len(findings.compared), replays, self.case.options.scan)


def candidates(graph: Graph) -> tuple[Precision, ...]:
    """A QDQ graph holds its quantisation: its floats are judged at a float precision. A half model ran at half or coarser."""
    ladder: tuple[Precision, ...] = LADDER
    if any(n.op in QUANTISING for n in graph.nodes):
        ladder = tuple(p for p in ladder if not p.stepped)
    if graph.upcast_from is not None:
        finer = (FP32,) if graph.upcast_from == np.float16 else (FP32, FP16)
        ladder = tuple(p for p in ladder if p not in finer)
    return ladder


def upwards(graph: ObservedGraph, tensor: str) -> list[str]:
    """The tensor, then its ancestors, nearest first (breadth first; ties: deepest first)."""
    position = {name: i for i, name in enumerate(graph.order)}
    seen, frontier, found = {tensor}, [tensor], [tensor]
    while frontier:
        above = {p for t in frontier for p in graph.parents[t] if p not in seen}
        frontier = sorted(above, key=lambda p: -position[p])
        seen |= above
        found += frontier
    return found
