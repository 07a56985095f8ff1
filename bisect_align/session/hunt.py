"""The search of one run: match, infer the precision, bisect, judge. All findings are kept here, also where the run is interrupted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from bisect_align.dumps.entry import Role
from bisect_align.errors import DumpError
from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.conviction import Finding, Ruling
from bisect_align.judgement.judge import APPEAL_TO
from bisect_align.judgement.policy import beyond
from bisect_align.metrics.measure import measure
from bisect_align.model.observed import ObservedGraph
from bisect_align.model.parameters import never_fed
from bisect_align.result.repeats import Repeats
from bisect_align.result.result import Consumed, Figures, SearchInfo, State
from bisect_align.search.answer import Crossing, crossings
from bisect_align.search.bisection import Bisection
from bisect_align.session.case import Case
from bisect_align.session.evidence import Evidence, by_name, gather
from bisect_align.session.golden import golden_of
from bisect_align.session.progress import Progress
from bisect_align.session.repeats import Repeated
from bisect_align.session.states import Compared, compared, figures_of
from bisect_align.session.wrong_input import WrongInput, wrong_input

Array: TypeAlias = NDArray[Any]


@dataclass(slots=True)
class Findings:
    """What a run knows so far. inherited: relative L2 of the replay of a ruled region against the golden. full: every observed
    region was ruled on."""

    evidence: Evidence | None = None
    compared: dict[str, Compared] = field(default_factory=dict)
    rulings: dict[str, Ruling] = field(default_factory=dict)
    inherited: dict[str, float] = field(default_factory=dict)
    repeats: Repeats | None = None
    crossings: tuple[Crossing, ...] = ()
    golden_suspect: tuple[str, ...] = ()
    wrong_input: WrongInput | None = None
    full: bool = False
    rounds: int = 0
    passes: int = 0


class Hunt:
    """Runs the questions of a case in their order; `findings` holds the answers."""

    def __init__(self, case: Case, progress: Progress) -> None:
        self.case, self.progress = case, progress
        self.findings = Findings()
        self.golden, self._bench = golden_of(case)
        self.repeated = Repeated(case) if case.options.repeat_dumps else None

    @property
    def bench(self) -> Bench:
        """The judge's, with the steps of this target, once the dump has been matched."""
        return self._bench if self.findings.evidence is None else self.findings.evidence.court.judge.bench

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
        if self.case.options.scan or not self._search_by_name():
            self.findings = Findings(evidence=gather(self.case, self.bench, self.golden, self.progress))
            if self.case.options.scan:
                self._scan()
            else:
                self._search()
        bad = {t for t, c in self.findings.compared.items() if c.state is State.BAD}
        self.findings.wrong_input = wrong_input(self.evidence.court, self.findings.rulings, bad, self.case.unseen_inputs)
        if not self.findings.full:
            self._weigh()
        if self.golden.foreign is not None:
            self._doubt_golden()
        if self.repeated is not None:
            self.progress.stage("repeats")
            self.findings.repeats = self.repeated.compare(self.evidence)

    # --- stages -----------------------------------------------------------------------------------------------------------

    def _search_by_name(self) -> bool:
        """Where a sample says that names hold, take them at their word and read only what the search asks for.

        True where that ended in a proof: a culprit whose wrong value was consumed. Anything less needs the whole dump matched.
        """
        try:
            evidence = by_name(self.case, self.bench, self.golden, self.progress)
            if evidence is None:
                return False
            self.findings.evidence = evidence
            return self._bisect() and all(
                r.consumed is Consumed.YES for r in self.findings.rulings.values() if r.finding is Finding.FAULT
            )
        except DumpError:  # an entry that cannot be read: the full pass says which, and goes on without it
            return False

    def _search(self) -> None:
        """Bisect; where that convicts nobody, judge everything."""
        if not self._bisect():
            self._scan()

    def _bisect(self) -> bool:
        """Bisect while something deep is BAD; judge the crossing, then its ancestors, nearest first, up to a conviction that settles
        the matter. True where anything was convicted."""
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
                if self._rule(tensor).finding is Finding.FAULT and self._settles(tensor):
                    return True
        return any(ruling.finding is Finding.FAULT for ruling in self.findings.rulings.values())

    def _settles(self, tensor: str) -> bool:
        """Does a conviction end the search? Not where it is a weak one (a fault above it may be what put this region beyond its
        noise), and not where more error came in than the region made: then a greater fault stands above."""
        ruling = self.evidence.court.rule(tensor)
        if (ruling.judged.value or 0.0) < APPEAL_TO and ruling.judged.score.kind is None:
            return False
        replay, golden = self.evidence.court.replayed(tensor, ruling.replaced), self.golden.value(tensor)
        if replay is None or golden is None or replay.shape != golden.shape:
            return True
        return (measure(golden, replay).rel_l2 or 0.0) <= ruling.judged.score.introduced

    def _scan(self) -> None:
        """Rule on every observed region, and compare every observed tensor."""
        order = self.evidence.observed.order
        self.progress.stage("judging", len(order))
        for tensor in order:
            self._rule(tensor)
            self.progress.advance()
        self._weigh()
        states = {t: c.state for t, c in self.findings.compared.items()}
        self.findings.crossings = crossings(self.evidence.observed, states)
        self.findings.full = True

    def _weigh(self) -> None:
        """What came into each region that was ruled on, and what it made of that: one golden pass, one replay a region."""
        rulings, judge = self.findings.rulings, self.evidence.court.judge
        boundary = {b for t in rulings for b in judge.region(t).boundary if b in self.evidence.observations.placed}
        self.progress.stage("budget", len(rulings))
        for tensor, golden in self.golden.stream([*rulings, *boundary - rulings.keys()]):
            if tensor not in self.findings.compared:
                self.findings.compared[tensor] = self._state(tensor, golden)
            if tensor in rulings and not isinstance(golden, Unavailable):
                replay = self.evidence.court.replayed(tensor, rulings[tensor].replaced)
                if replay is not None and replay.shape == golden.shape:
                    error = measure(golden, replay).rel_l2
                    if error is not None:
                        self.findings.inherited[tensor] = error
            self.progress.advance()

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
        evidence = self.evidence
        precision = evidence.precision.precision.name
        return compared(self.case, tensor, golden, evidence.observations.value, evidence.noise.get(tensor), precision)

    def figures(self, tensor: str, golden: Array, target: Array) -> Figures:
        """Figures of a pair of one shape, as many as the user asked for."""
        return figures_of(self.case, tensor, golden, target)

    def _doubt_golden(self) -> None:
        """A foreign golden is suspect where ONNX Runtime's own golden sides with the target."""
        bad = [t for t, c in self.findings.compared.items() if c.state is State.BAD]
        if bad:
            sided = (tensor for tensor, own in self.golden.own(bad) if self._state(tensor, own).state is State.GOOD)
            self.findings.golden_suspect = tuple(sided)

    def gain(self, tensor: str) -> float | None:
        """What a region makes of an error that comes in: inherited over the largest accumulated error at its boundary; None where
        nothing came in, or either is not known."""
        inherited = self.findings.inherited.get(tensor)
        fed = 0.0
        for name in self.evidence.court.judge.region(tensor).boundary:
            compared = self.findings.compared.get(name)
            if compared is not None and compared.figures is not None:
                fed = max(fed, compared.figures.rel_l2 or 0.0)
        return inherited / fed if inherited is not None and fed > 0 else None

    def deterministic(self, tensor: str) -> bool | None:
        """Whether all further dumps of the run hold the same value; None where that was not compared."""
        repeats = self.findings.repeats
        entry = self.evidence.matched.placed[tensor].claim.entry
        if repeats is None or entry in repeats.not_compared:
            return None
        return all(one.entry != entry for one in repeats.differing)

    # --- what the verdict asks ------------------------------------------------------------------------------------------------

    def ends(self) -> list[str]:
        """The outputs that were compared or, where the dump holds none, the deepest tensors."""
        compared = self.findings.compared
        outputs = [t for t in self.case.model.graph.outputs if t in compared]
        return outputs or [t for t in self.evidence.observed.deepest if t in compared]

    def ends_compared(self) -> bool:
        """True where the golden had a value for one of the ends at least (a foreign golden may hold a few tensors only)."""
        return any(self.findings.compared[t].state is not State.UNKNOWN for t in self.ends())

    def beyond(self) -> tuple[str, ...]:
        """Outputs (or, where the dump holds none, the deepest tensors) that noise or the user's thresholds do not cover, or whose
        entry holds another tensor's value: such an end was not compared."""
        compared, limits = self.findings.compared, self.case.policy.thresholds
        found = []
        for tensor in self.ends():
            figures = compared[tensor].figures
            limited = figures is not None and tensor in self.case.model.graph.outputs and beyond(figures, limits)
            ruling = self.findings.rulings.get(tensor)
            misnamed = ruling is not None and ruling.finding is Finding.NAME
            if compared[tensor].state is State.BAD or limited or misnamed:
                found.append(tensor)
        return tuple(found)

    def unmatched(self) -> tuple[str, ...]:
        """Entries of the target that are no tensor's value, and claim no input, no weight and nothing that steers shapes."""
        case, graph = self.case, self.case.model.graph
        compared = graph.order.keys() - never_fed(graph)
        known = self.evidence.matched.used | case.claims.beside(compared) | set(case.claims.ambiguous)
        return tuple(key for key, entry in case.entries.items() if entry.role is Role.TARGET and key not in known)

    def info(self) -> SearchInfo:
        """What the search cost so far."""
        findings = self.findings
        replays = self.case.engine.counters.replays
        return SearchInfo(findings.rounds, findings.passes, len(findings.compared), replays, self.case.options.scan)


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
