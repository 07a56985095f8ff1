"""The first pass over a dump: try every claim where its name says, and learn from the residuals how far the names can be trusted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Entry
from bisect_align.errors import DumpError
from bisect_align.golden.protocol import Golden, Unavailable, Value
from bisect_align.matching.claims import Claim, Rule
from bisect_align.matching.fit import LOOSEST, VOTES_MIN, Tolerance, Votes, carries_evidence, fit, learn, like_codes, read
from bisect_align.matching.lookaround import Around, Pending
from bisect_align.matching.observations import Status, observation
from bisect_align.model.graph import Graph
from bisect_align.model.operators import MOVES

Array: TypeAlias = NDArray[Any]
HabitKey: TypeAlias = tuple[tuple[str, str], tuple[str, ...]]  # kind of a claim, operators of the chain that it names

PROVEN = 0.8  # share of a class of weak names that must fit before the others are believed
PROVEN_MIN = 3
TRIED = 2  # hidden layouts that are tried on the whole dump
USUAL = "CL"  # the one that is tried also where no entry fits it: one fault above all others may spoil every one of them
NAMES_HOLD = 0.8  # share of strong claims that fit, from which a shape that no layout explains is the operator's doing


@dataclass(slots=True)
class Knowledge:
    """What the dump itself has taught: tolerance of fits, layouts, places by habit, classes of weak names that hold, and single
    entries whose value others were computed from."""

    tolerance: Tolerance = LOOSEST
    votes: Votes = field(default_factory=Votes)
    habits: dict[HabitKey, int] = field(default_factory=dict)
    proven: set[tuple[str, str]] = field(default_factory=set)
    consumed: set[str] = field(default_factory=set)
    names_hold: bool = False

    def believes(self, claim: Claim, graph: Graph) -> bool:
        """May an entry that fits nothing stay where this claim says? Strong names may; weak ones where the dump has proven them."""
        if not claim.weak or claim.kind in self.proven or claim.entry in self.consumed:
            return True
        op = graph.nodes[graph.producer[claim.tensor]].op
        named_op = claim.affix.strip("_-./:!").casefold() == op.casefold()
        return (named_op or claim.rule is Rule.NODE) and (claim.rule, "*") in self.proven


class Survey:
    """The hook of the survey pass. residuals: entry -> relative L2 from the prediction (inf: no layout explains its shape);
    unfit: how many entries of each (entry rank, tensor rank) fit nothing."""

    def __init__(
        self, graph: Graph, entries: Mapping[str, Entry], waiting: Mapping[str, Sequence[Claim]], around: Around, known: Knowledge
    ) -> None:
        self.graph, self.entries, self.waiting, self.around, self.known = graph, entries, waiting, around, known
        self.pending = Pending(around, known.votes)
        self.residuals: dict[str, float] = {}
        self.unfit: Counter[tuple[int, int]] = Counter()

    def hook(self, name: str, predicted: Value) -> Array | None:
        """Feeds the first entry that fits roughly, else the prediction."""
        if isinstance(predicted, Unavailable):
            return None
        fed: Array | None = None
        for claim in self.waiting.get(name, ()):
            try:
                raw = read(self.entries[claim.entry], predicted.dtype, predicted.shape)
            except DumpError:
                continue
            got = fit(raw, predicted, self.known.votes, LOOSEST)
            astray = got is None or got.residual > LOOSEST.fits
            explained = self.pending.explain(name, raw, LOOSEST, vote=True) if astray else None
            if explained is not None:
                got = explained[0]
            elif got is not None:
                got = fit(raw, predicted, self.known.votes, LOOSEST, vote=True)
            if got is None:
                self.residuals[claim.entry] = np.inf
                continue
            if got.residual > LOOSEST.fits and like_codes(got.values, predicted) is not None:
                continue
            if carries_evidence(got.values):
                self.residuals[claim.entry] = got.residual
            seen = observation(name, claim, Status.NAMED, got)
            if fed is None and got.residual <= LOOSEST.fits:
                fed = got.values
                self.around.observations.placed[name] = seen
                self.around.observations.keep(name, fed)
            elif got.residual > LOOSEST.fits:
                self.pending.seen[name] = seen
                self.unfit[raw.ndim, predicted.ndim] += 1
        return fed

    @property
    def to_try(self) -> list[tuple[tuple[int, int], str]]:
        """Hidden layouts that could explain enough of what fits nothing, likeliest first."""
        votes = self.known.votes
        found = [one for one in votes.doubtful() if self.unfit[one[0]] >= VOTES_MIN][:TRIED]
        usual = [(key, USUAL) for key, n in self.unfit.most_common(1) if n >= VOTES_MIN and min(key) > 2]
        return found + [one for one in usual if one not in found and not votes.believed(*one)]

    @property
    def fitting(self) -> int:
        """Entries that follow from others."""
        return sum(r <= LOOSEST.fits for r in self.residuals.values())

    def learn(self, claims: Mapping[str, Claim]) -> None:
        """Tolerance, classes of weak names that hold, and whether strong names hold."""
        graph, known = self.graph, self.known
        ops = {e: graph.nodes[graph.producer[claims[e].tensor]].op for e in self.residuals}
        known.tolerance = learn([r for e, r in self.residuals.items() if ops[e] not in MOVES])
        classes: dict[tuple[str, str], list[bool]] = defaultdict(list)
        strong: list[bool] = []
        for entry, r in self.residuals.items():
            claim, fits = claims[entry], r <= known.tolerance.fits
            classes[claim.kind].append(fits)
            classes[(claim.rule, "*")].append(fits)
            if not claim.weak and np.isfinite(r):
                strong.append(fits)
        known.proven = {k for k, v in classes.items() if len(v) >= PROVEN_MIN and sum(v) >= PROVEN * len(v)}
        known.names_hold = bool(strong) and sum(strong) >= NAMES_HOLD * len(strong)


def survey(
    engine: Golden,
    inputs: Mapping[str, Array],
    begin: Callable[[Knowledge], Survey],
    claims: Mapping[str, Claim],
    known: Knowledge,
) -> None:
    """Fill `known` by a pass over the dump. begin: a survey that knows nothing but what it is given.

    Where equal dims hide the layout, one entry read in the wrong order spoils what follows from it, and too few are left to vote.
    A layout that some entry fits clearly, and channels last anyway, is then tried on the whole dump: a layout makes many entries fit,
    a fault but one.
    """
    best = begin(known)
    engine.local(inputs, best.hook)
    for key, label in best.to_try:
        if best.fitting + VOTES_MIN > len(best.residuals):
            break
        other = begin(Knowledge(votes=best.known.votes.settled_on(key, label)))
        engine.local(inputs, other.hook)
        if other.fitting >= best.fitting + VOTES_MIN:
            best = other
    known.votes, best.known = best.known.votes, known
    best.learn(claims)
