"""Claims become observations: one pass in topological order in which every tensor is predicted from target values already settled.

A survey pass tries every claim where its name says and learns from the residuals: tolerance, layouts, which classes of weak names
hold. The named pass then settles each entry: at its name, at another tensor of the same fusable chain (an alias), or, where it fits
nothing, where the dump's habit says - a fault looks like that and is never matched away.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Entry
from bisect_align.errors import DumpError
from bisect_align.golden.protocol import Golden, Unavailable, Value
from bisect_align.matching.claims import Claim, Claims, Rule
from bisect_align.matching.fit import BETTER, LOOSEST, Fit, Tolerance, Votes, carries_evidence, fit, learn, read
from bisect_align.matching.observations import Observation, Observations, Status
from bisect_align.model.chain import above, below, signature
from bisect_align.model.graph import Graph
from bisect_align.model.operators import MOVES
from bisect_align.model.parameters import never_fed
from bisect_align.model.region import region

Array: TypeAlias = NDArray[Any]

ROUNDS = 4  # of relabelling upstream
REPLAY_MAX = 64  # nodes that a look along the chain may cost
PROVEN = 0.8  # share of a class of weak names that must fit before the others are believed
PROVEN_MIN = 3
HABIT_MIN, HABIT_SHARE = 2, 0.8
SIGNATURE = 3  # operators of the chain by which habits are told apart
HABIT_BETTER = 1.5  # how much better a habit's place must be than the name's
NAMES_HOLD = 0.8  # share of strong claims that fit, from which a shape that no layout explains is the operator's doing


@dataclass(slots=True)
class Knowledge:
    """What the dump itself has taught: tolerance of fits, layouts, places by habit, classes of weak names that hold, and single
    entries whose value others were computed from."""

    tolerance: Tolerance = LOOSEST
    votes: Votes = field(default_factory=Votes)
    habits: dict[tuple[tuple[str, str], tuple[str, ...]], int] = field(default_factory=dict)
    proven: set[tuple[str, str]] = field(default_factory=set)
    consumed: set[str] = field(default_factory=set)
    names_hold: bool = False


@dataclass(frozen=True, slots=True)
class Matched:
    """placed: tensor -> observation. unknown: tensor -> why its entry is not compared. dropped: entry -> why it is nothing's value.
    aliases: entry -> (named tensor, tensor whose value it holds). twins: entry -> the entry that was read instead."""

    placed: Mapping[str, Observation]
    unknown: Mapping[str, str]
    dropped: Mapping[str, str]
    twins: Mapping[str, str]
    tolerance: Tolerance
    passes: int

    @property
    def aliases(self) -> dict[str, tuple[str, str]]:
        return {o.claim.entry: (o.claim.tensor, t) for t, o in self.placed.items() if o.status is Status.ALIAS}


class Matcher:
    """One dump against one graph. Values go through `observations`; nothing else is kept but figures."""

    def __init__(
        self,
        graph: Graph,
        engine: Golden,
        inputs: Mapping[str, Array],
        entries: Sequence[Entry],
        claims: Claims,
        memory: int = 256 << 20,
    ) -> None:
        self.graph, self.engine, self.inputs = graph, engine, inputs
        self.entries = {e.key: e for e in entries}
        self.memory = memory
        self.steering = never_fed(graph)
        self.known = Knowledge()
        self.passes = 0
        order = graph.order
        self.homes = {c.entry: c.tensor for c in claims.claims if c.tensor in order}
        self.claims = {c.entry: c for c in claims.claims if c.tensor in order}
        self._start()

    def _start(self) -> None:
        self.placed: dict[str, Observation] = {}
        self.unknown: dict[str, str] = {}
        self.dropped: dict[str, str] = {}
        self.twins: dict[str, str] = {}
        self.residuals: dict[str, float] = {}
        self.offsets: dict[tuple[tuple[str, str], tuple[str, ...]], Counter[int]] = defaultdict(Counter)
        self.upwards: dict[str, str] = {}
        self.pending: dict[str, tuple[Claim, Array]] = {}
        self.observations = Observations(self.entries, self.inputs, self.placed, self.memory)
        self.waiting: dict[str, list[Claim]] = defaultdict(list)
        for entry, tensor in self.homes.items():
            self.waiting[tensor].append(self.claims[entry])

    def match(self) -> Matched:
        """Survey, then settle; again while entries move upstream or habits appear that could settle what is left."""
        self.engine.local(self.inputs, self._survey)
        self.passes += 1
        self._learn()
        for _ in range(ROUNDS):
            self._start()
            consumed = len(self.known.consumed)
            self.engine.local(self.inputs, self._settle)
            self.passes += 1
            self.homes.update(self.upwards)
            habits, before = self._habits(), self.known.habits
            self.known.habits = habits
            unsettled = bool(self.dropped) or any(o.status is Status.UNSUPPORTED for o in self.placed.values())
            taught = habits != before and unsettled
            if not self.upwards and not taught and len(self.known.consumed) == consumed:
                break
        return Matched(self.placed, self.unknown, self.dropped, self.twins, self.known.tolerance, self.passes)

    # --- survey ---------------------------------------------------------------------------------------------------------

    def _survey(self, name: str, predicted: Value) -> Array | None:
        fed: Array | None = None
        if isinstance(predicted, Unavailable) or name in self.steering:
            return None
        for claim in self.waiting.get(name, ()):
            try:
                raw = read(self.entries[claim.entry], predicted.dtype, predicted.shape)
            except DumpError:
                continue
            got = fit(raw, predicted, self.known.votes, LOOSEST)
            if (got is None or got.residual > LOOSEST.fits) and (leaned := self._with_pending(name, raw)) is not None:
                got = leaned
            elif got is not None:
                got = fit(raw, predicted, self.known.votes, LOOSEST, vote=True)
            if got is None:
                self.residuals[claim.entry] = np.inf
                continue
            if carries_evidence(got.values):
                self.residuals[claim.entry] = got.residual
            if fed is None and got.residual <= LOOSEST.fits:
                fed = got.values
                self.placed[name] = self._observe(name, claim, Status.NAMED, got)[0]
                self.observations.keep(name, fed)
            elif got.residual > LOOSEST.fits:
                self.pending[name] = (claim, got.values)
        return fed

    def _learn(self) -> None:
        graph = self.graph
        ops = {e: graph.nodes[graph.producer[self.claims[e].tensor]].op for e in self.residuals}
        self.known.tolerance = learn([r for e, r in self.residuals.items() if ops[e] not in MOVES])
        classes: dict[tuple[str, str], list[bool]] = defaultdict(list)
        strong: list[bool] = []
        for entry, r in self.residuals.items():
            claim = self.claims[entry]
            fits = r <= self.known.tolerance.fits
            classes[claim.kind].append(fits)
            classes[(claim.rule, "*")].append(fits)
            if not claim.weak:
                strong.append(fits)
        self.known.proven = {k for k, v in classes.items() if len(v) >= PROVEN_MIN and sum(v) >= PROVEN * len(v)}
        finite = [
            f
            for f, r in zip(strong, (r for e, r in self.residuals.items() if not self.claims[e].weak), strict=True)
            if np.isfinite(r)
        ]
        self.known.names_hold = bool(finite) and sum(finite) >= NAMES_HOLD * len(finite)

    def believed(self, claim: Claim) -> bool:
        """May an entry that fits nothing stay where this claim says? Strong names may; weak ones where the dump has proven them."""
        if not claim.weak or claim.kind in self.known.proven or claim.entry in self.known.consumed:
            return True
        op = self.graph.nodes[self.graph.producer[claim.tensor]].op
        named_op = claim.affix.strip("_-./:!").casefold() == op.casefold()
        return (named_op or claim.rule is Rule.NODE) and (claim.rule, "*") in self.known.proven

    # --- named pass -----------------------------------------------------------------------------------------------------

    def _settle(self, name: str, predicted: Value) -> Array | None:
        claims = sorted(self.waiting.get(name, ()), key=lambda c: (c.tensor != name, c.weak))
        if not claims:
            return None
        if name in self.steering:
            self.unknown[name] = "steers shapes or steps: not compared"
            return None
        if isinstance(predicted, Unavailable):
            self.unknown[name] = predicted.reason
            return None
        found: list[tuple[Observation, Array]] = []
        for claim in claims:
            got = self._place(name, predicted, claim)
            if got is not None:
                found.append(got)
        chosen = self._choose(name, found)
        if chosen is None:
            return None
        seen, values = chosen
        self.placed[name] = seen
        self.observations.keep(name, values)
        self.unknown.pop(name, None)
        self._note_offset(seen.claim, name, seen)
        return values

    def _place(self, name: str, predicted: Array, claim: Claim) -> tuple[Observation, Array] | None:
        """Decide one entry at one tensor; None where it goes elsewhere or is nothing's value."""
        tolerance = self.known.tolerance
        try:
            raw = read(self.entries[claim.entry], predicted.dtype, predicted.shape)
        except DumpError as trouble:
            self.unknown[name] = self.dropped[claim.entry] = str(trouble)
            return None
        got = fit(raw, predicted, self.known.votes, tolerance)
        moved = claim.tensor != name
        if got is None:
            return self._refuse_shape(name, predicted, claim, raw)
        if not carries_evidence(got.values):
            return self._observe(name, claim, Status.NAME_ONLY, got)
        if got.residual <= tolerance.tie:
            return self._observe(name, claim, Status.ALIAS if moved else Status.NAMED, got)
        if not moved:
            place, torn = self._elsewhere(name, predicted, claim, raw, got)
            if torn:
                self.unknown[name] = self.dropped[claim.entry] = (
                    f"fits {name!r} and, better but not clearly, {place!r} of the same chain"
                )
                return None
            if place is not None:
                self._move(claim, name, place)
                return None
        if got.residual <= tolerance.fits:
            return self._observe(name, claim, Status.ALIAS if moved else Status.NAMED, got)
        if self.pending and (explained := self._with_pending(name, raw)) is not None:
            return self._observe(name, claim, Status.ALIAS if moved else Status.NAMED, explained)
        if not self.believed(claim):
            if not moved:
                self.pending[name] = (claim, got.values)
            self.dropped[claim.entry] = f"fits no tensor near {claim.tensor!r} (relative L2 {got.residual:.2g} there)"
            return None
        return self._observe(name, claim, Status.UNSUPPORTED, got)

    def _elsewhere(self, name: str, predicted: Array, claim: Claim, raw: Array, here: Fit) -> tuple[str | None, bool]:
        """The tensor of the chain whose value the entry holds, where the evidence is clear; or, for what fits nothing, the place
        where this dump's entries of the kind usually belong. True: another tensor fits better, but not clearly enough to say so."""
        tolerance = self.known.tolerance
        chain = self._chain(name, predicted)
        table = {c: f.residual for c, p in chain.items() if (f := fit(raw, p, self.known.votes, tolerance)) is not None}
        habit = self._habit_place(claim)
        if habit in table and here.residual > HABIT_BETTER * table[habit] and table[habit] <= tolerance.fits / 2:
            return habit, False
        if table:
            best = min(table, key=lambda c: table[c])
            if table[best] <= tolerance.fits / 2 and table[best] * HABIT_BETTER < here.residual:
                return best, table[best] * BETTER >= here.residual
        if here.residual > tolerance.fits and habit in table:
            return habit, False
        return None, False

    def _with_pending(self, name: str, raw: Array) -> Fit | None:
        """The entry's fit where weak entries above it, that fit nothing themselves, are taken at their word: what follows from a
        value proves that the value was there."""
        settled = _Settled(self.observations, *self.pending)
        area = region(self.graph, name, settled)
        leaned = [b for b in area.boundary if b in self.pending and b not in self.placed]
        if not leaned:
            return None
        given = {b: self.pending[b][1] for b in leaned}
        predicted = self._predict(area.nodes, area.boundary, name, given).get(name)
        got = fit(raw, predicted, self.known.votes, self.known.tolerance) if predicted is not None else None
        if got is None or got.residual > self.known.tolerance.fits or not carries_evidence(got.values):
            return None
        self.known.consumed |= {self.pending[b][0].entry for b in leaned}
        return got

    def _move(self, claim: Claim, name: str, place: str) -> None:
        """Put the entry at another tensor: below in this pass, above in the next."""
        if self.graph.order[place] > self.graph.order[name]:
            self.waiting[place].append(claim)
        else:
            self.upwards[claim.entry] = place

    def _chain(self, name: str, predicted: Array) -> dict[str, Array]:
        """Predictions of the tensors above and below `name` in its fusable chain that no entry is named after, of equal size."""
        taken = {c.tensor for c in self.claims.values() if not c.weak} - {name}
        found: dict[str, Array] = {}
        for place in below(self.graph, name):
            if place in taken and any(c.tensor == place for c in self.waiting.get(place, ())):
                continue
            area = region(self.graph, place, _Settled(self.observations, name))
            found |= self._predict(area.nodes, area.boundary, place, {name: predicted})
        hidden = [p for p in above(self.graph, name) if p not in self.placed and not self.waiting.get(p)]
        if hidden:
            area = region(self.graph, name, self.observations)
            inside = [p for p in hidden if p in area.hidden]
            for place in inside:
                found |= self._predict(area.nodes, area.boundary, place, {})
        return {n: v for n, v in found.items() if v.size == predicted.size}

    def _predict(
        self, nodes: Sequence[int], boundary: Sequence[str], wanted: str, given: Mapping[str, Array]
    ) -> dict[str, Array]:
        if len(nodes) > REPLAY_MAX:
            return {}
        feeds = {b: given[b] if b in given else self.observations.value(b) for b in boundary}
        got = self.engine.replay(nodes, feeds, [wanted])[wanted]
        return {} if isinstance(got, Unavailable) else {wanted: got}

    def _refuse_shape(self, name: str, predicted: Array, claim: Claim, raw: Array) -> tuple[Observation, Array] | None:
        """No layout explains the shape: the operator's doing where names hold and the rank is right, else a false claim."""
        self.unknown[name] = f"entry has shape {raw.shape}, the tensor {predicted.shape}"
        if (
            claim.weak
            or not self.known.names_hold
            or raw.ndim != predicted.ndim
            or not raw.size
            or self.entries[claim.entry].shape is None
        ):
            self.dropped[claim.entry] = self.unknown[name]
            return None
        seen = Observation(name, claim, Status.WRONG_SHAPE, np.inf, None, predicted.dtype, raw.shape)
        return seen, raw

    def _observe(self, name: str, claim: Claim, status: Status, got: Fit) -> tuple[Observation, Array]:
        return Observation(name, claim, status, got.residual, got.fix, got.values.dtype, got.values.shape), got.values

    def _choose(self, name: str, found: list[tuple[Observation, Array]]) -> tuple[Observation, Array] | None:
        """Of several entries for one tensor, the one that its consumers read; differing ones are never resolved by the better fit."""
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        ranked = sorted(found, key=lambda f: (not _dequantised(f[0].claim), f[0].claim.tensor != name, f[0].claim.weak))
        first, rest = ranked[0], ranked[1:]
        for other, _ in rest:
            both = first[0].supported and other.supported
            if not both and other.status is not first[0].status and not other.claim.weak and other.status is not Status.NAME_ONLY:
                self.unknown[name] = f"two entries differ: {first[0].claim.entry!r} and {other.claim.entry!r}"
                return None
            self.twins[other.claim.entry] = first[0].claim.entry
        return first

    # --- habits ---------------------------------------------------------------------------------------------------------

    def _line(self, tensor: str) -> list[str]:
        return [*reversed(above(self.graph, tensor)), tensor, *below(self.graph, tensor)]

    def _signature(self, tensor: str) -> tuple[str, ...]:
        return signature(self.graph, tensor)[:SIGNATURE]

    def _note_offset(self, claim: Claim, name: str, seen: Observation) -> None:
        if not seen.supported:
            return
        line = self._line(claim.tensor)
        if name in line:
            self.offsets[(claim.kind, self._signature(claim.tensor))][line.index(name) - line.index(claim.tensor)] += 1

    def _habits(self) -> dict[tuple[tuple[str, str], tuple[str, ...]], int]:
        found = {}
        for key, counter in self.offsets.items():
            offset, count = counter.most_common(1)[0]
            if offset and count >= HABIT_MIN and count >= HABIT_SHARE * counter.total():
                found[key] = offset
        return found

    def _habit_place(self, claim: Claim) -> str | None:
        offset = self.known.habits.get((claim.kind, self._signature(claim.tensor)))
        if offset is None:
            return None
        line = self._line(claim.tensor)
        at = line.index(claim.tensor) + offset
        return line[at] if 0 <= at < len(line) else None


class _Settled:
    """The observed tensors together with some more."""

    def __init__(self, observations: Observations, *extra: str) -> None:
        self._observations, self._extra = observations, frozenset(extra)

    def __contains__(self, name: object) -> bool:
        return name in self._extra or name in self._observations


def _dequantised(claim: Claim) -> bool:
    return "dequant" in claim.affix.casefold()
