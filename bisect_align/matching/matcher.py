"""Claims become observations: one pass in topological order in which every tensor is predicted from target values already settled.

A survey pass tries every claim where its name says and learns from the residuals: tolerance, layouts, which classes of weak names
hold. The named pass then settles each entry: at its name, at another tensor of the same fusable chain (an alias), or, where it fits
nothing, where the dump's habit says - a fault looks like that and is never matched away.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Entry
from bisect_align.errors import DumpError
from bisect_align.golden.protocol import Golden, Unavailable, Value
from bisect_align.matching.claims import Claim, Claims, Rule
from bisect_align.matching.fit import BETTER, Fit, carries_evidence, fit, read, residual, tells_nothing
from bisect_align.matching.lookaround import Around, Pending
from bisect_align.matching.observations import Observation, Observations, Status, observation
from bisect_align.matching.prints import Print, fingerprint
from bisect_align.matching.survey import HabitKey, Knowledge, Survey, survey
from bisect_align.model.chain import above, below
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph
from bisect_align.model.parameters import never_fed

Array: TypeAlias = NDArray[Any]

ROUNDS = 4  # of relabelling upstream
HABIT_MIN, HABIT_SHARE = 2, 0.8
SIGNATURE, ALIKE = 3, 2  # operators of the chain by which habits are told apart, and how many must agree at least
HABIT_BETTER = 1.5  # how much better a habit's place must be than the name's
CLEARER = 2.0  # how much better an entry must follow from another that was moved away, before the other is moved back


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
        self.repeats: dict[str, str] = {}
        self._lines: dict[str, list[str]] = {}
        order = graph.order
        self.homes = {c.entry: c.tensor for c in claims.claims if c.tensor in order}
        self.claims = {c.entry: c for c in claims.claims if c.tensor in order}
        self.named = frozenset(self.claims)
        self.spoken_for = frozenset((*claims.beside(order.keys() - self.steering), *claims.ignored))
        self._start()

    def _start(self) -> None:
        self.placed: dict[str, Observation] = {}
        self.unknown: dict[str, str] = {}
        self.dropped: dict[str, str] = {}
        self.twins: dict[str, str] = {}
        self.offsets: dict[HabitKey, Counter[int]] = defaultdict(Counter)
        self.refused: set[str] = set()
        self.sizes: dict[str, int] = {}
        self.odd: set[str] = set()  # tensors whose prediction holds NaN or Inf
        self.prints: dict[str, Print] = {}  # of the predictions of tensors that no entry was put at
        self.upwards: dict[str, str] = {}
        self.observations = Observations(self.entries, self.inputs, self.placed, self.memory)
        self.around = Around(self.graph, self.engine, self.observations)
        self.pending = Pending(self.around, self.known.votes)
        self.waiting: dict[str, list[Claim]] = defaultdict(list)
        for entry, tensor in self.homes.items():
            self.waiting[tensor].append(self.claims[entry])
        # tensors that an entry is named after: no other entry's alias is looked for there
        self.taken = {t for entry, t in self.homes.items() if (c := self.claims[entry]).tensor == t and not c.weak}
        self._chain: tuple[str, dict[str, Array]] = ("", {})

    def by_name(self) -> None:
        """Survey the dump, then settle every claim that a name makes."""
        if self.claims:
            survey(self.engine, self.inputs, self._begin, self.claims, self.known)
            self._settle_names()

    def _begin(self, known: Knowledge) -> Survey:
        self._start()
        return Survey(self.graph, self.entries, self._fed_only(), self.around, known)

    def _fed_only(self) -> dict[str, list[Claim]]:
        return {t: claims for t, claims in self.waiting.items() if t not in self.steering}

    def _settle_names(self) -> None:
        """Settle; again while entries move upstream or habits appear that could settle what is left."""
        before: dict[HabitKey, int] = {}
        for _ in range(ROUNDS):
            consumed = len(self.known.consumed)
            self.settle()
            self.known.habits = self._habits()
            self.homes.update({entry: place for entry, place in self.upwards.items() if entry not in self.known.consumed})
            for tensor, seen in self.placed.items():
                if seen.status is Status.ALIAS and self._habit_place(seen.claim) in (None, tensor):
                    self.homes[seen.claim.entry] = tensor
            moving = {key: offset for key, offset in self.known.habits.items() if offset}
            taught = moving != before and (bool(self.dropped) or any(map(self._doubtful, self.placed.items())))
            before = moving
            if not self.upwards and not taught and len(self.known.consumed) == consumed:
                return

    def settle(self) -> None:
        """One pass that decides every claim anew."""
        self._start()
        self.engine.local(self.inputs, self._settle)

    def adopt(self, entry: str, tensor: str, *, consumed: bool = False) -> None:
        """Claim a tensor for an entry by value. consumed: others follow from it, so that it stays though it fits no prediction."""
        self.claims[entry] = Claim(entry, tensor, Rule.VALUE)
        self.homes[entry] = tensor
        if consumed:
            self.known.consumed.add(entry)

    @property
    def accounted_for(self) -> set[str]:
        """Entries of which it is known what they are: placed, the repetition of what is or of an input, an input or a weight, or
        left out by the map."""
        return {o.claim.entry for o in self.placed.values()} | set(self.twins) | set(self.repeats) | self.spoken_for

    # --- named pass -----------------------------------------------------------------------------------------------------

    def _settle(self, name: str, predicted: Value) -> Array | None:
        """The hook of a pass: what is fed for this tensor, and prints of what is not."""
        fed = self._settled(name, predicted)
        if fed is None and name not in self.steering and not isinstance(predicted, Unavailable):
            found = fingerprint(predicted)
            if found is not None:
                self.prints[name] = found
        return fed

    def _settled(self, name: str, predicted: Value) -> Array | None:
        if not isinstance(predicted, Unavailable):
            self.sizes[name] = predicted.size
            if is_float(predicted.dtype) and not np.isfinite(predicted).all():
                self.odd.add(name)
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
        if why := tells_nothing(self.entries[claim.entry], got, predicted, tolerance):
            self.unknown[name] = self.dropped[claim.entry] = why
            return None
        if not carries_evidence(got.values):
            habit = self._habit_place(claim) if not moved else None
            if habit is not None and habit not in self.taken:
                self._move(claim, name, habit)
                return None
            return _placed(name, claim, Status.NAME_ONLY, got)
        if got.residual <= tolerance.tie:
            return _placed(name, claim, Status.ALIAS if moved else Status.NAMED, got)
        if not moved and claim.rule is not Rule.VALUE:
            place, torn = self._elsewhere(name, predicted, claim, raw, got)
            if torn:
                self.unknown[name] = self.dropped[claim.entry] = (
                    f"fits {name!r} and, better but not clearly, {place!r} of the same chain"
                )
                return None
            upwards = place is not None and self.graph.order[place] < self.graph.order[name]
            if place is not None and not (upwards and claim.entry in self.known.consumed):
                self._move(claim, name, place)
                if upwards:  # an operator that was left out looks like this: what was computed from it tells
                    self.pending.seen[name] = observation(name, claim, Status.UNSUPPORTED, got)
                return None
        explained = self.pending.explain(name, raw, tolerance)
        if got.residual <= tolerance.fits and (explained is None or explained[0].residual * CLEARER >= got.residual):
            return _placed(name, claim, Status.ALIAS if moved else Status.NAMED, got)
        if explained is not None:
            self.known.consumed.update(explained[1])
            return _placed(name, claim, Status.ALIAS if moved else Status.NAMED, explained[0])
        if not self.known.believes(claim, self.graph):
            if not moved:
                self.pending.seen[name] = observation(name, claim, Status.UNSUPPORTED, got)
            self.dropped[claim.entry] = f"fits no tensor near {claim.tensor!r} (relative L2 {got.residual:.2g} there)"
            return None
        return _placed(name, claim, Status.UNSUPPORTED, got)

    def _elsewhere(self, name: str, predicted: Array, claim: Claim, raw: Array, here: Fit) -> tuple[str | None, bool]:
        """The tensor of the chain whose value the entry holds, where the evidence is clear; or, for what fits nothing, the place
        where this dump's entries of the kind usually belong. True: another tensor fits better, but not clearly enough to say so."""
        tolerance = self.known.tolerance
        if self._chain[0] != name:  # several entries of one name look along the same chain
            self._chain = name, self.around.chain(name, predicted, self.taken)
        chain = self._chain[1]
        # an entry with a NaN fits nothing; where it belongs is told by its other elements
        table = {c: f.near for c, p in chain.items() if (f := fit(raw, p, self.known.votes, tolerance)) is not None}
        habit = self._habit_place(claim)
        if habit in table and here.near * BETTER >= table[habit]:
            return habit, False
        if table:
            best = min(table, key=lambda c: table[c])
            if table[best] <= tolerance.fits / 2 and table[best] * HABIT_BETTER < here.near:
                return best, table[best] * BETTER >= here.near
        return None, False

    def _move(self, claim: Claim, name: str, place: str) -> None:
        """Put the entry at another tensor: below in this pass, above in the next."""
        if self.graph.order[place] > self.graph.order[name]:
            self.waiting[place].append(claim)
        else:
            self.upwards[claim.entry] = place

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

    def _choose(self, name: str, found: list[tuple[Observation, Array]]) -> tuple[Observation, Array] | None:
        """Of several entries for one tensor, the one that its consumers read; differing ones are never resolved by the better fit."""
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        ranked = sorted(found, key=lambda f: (not _dequantised(f[0].claim), f[0].claim.tensor != name, f[0].claim.weak))
        (first, values), rest = ranked[0], ranked[1:]
        for other, theirs in rest:
            near = other.shape == first.shape and residual(theirs, values) <= self.known.tolerance.tie
            if not near and not other.claim.weak and other.status is not Status.NAME_ONLY:
                self.unknown[name] = f"two entries differ: {first.claim.entry!r} and {other.claim.entry!r}"
                self.refused |= {first.claim.entry, other.claim.entry}
                return None
            self.twins[other.claim.entry] = first.claim.entry
        return first, values

    # --- habits ---------------------------------------------------------------------------------------------------------

    def _line(self, tensor: str) -> list[str]:
        """The fusable chain through a tensor, from above downwards."""
        if tensor not in self._lines:
            self._lines[tensor] = [*reversed(above(self.graph, tensor)), tensor, *below(self.graph, tensor)]
        return self._lines[tensor]

    def _signatures(self, tensor: str) -> list[tuple[str, ...]]:
        """Operator types of the chain that starts with the producer of `tensor`, the longest first: the keys over which naming
        habits are learnt."""
        line = self._line(tensor)
        chain = line[line.index(tensor) :][:SIGNATURE]
        ops = tuple(self.graph.nodes[self.graph.producer[name]].op for name in chain)
        return [ops[:n] for n in range(len(ops), min(ALIKE, len(ops)) - 1, -1)]

    def _note_offset(self, claim: Claim, name: str, seen: Observation) -> None:
        if not seen.supported:
            return
        line = self._line(claim.tensor)
        if name in line:
            for signature in self._signatures(claim.tensor):
                self.offsets[(claim.kind, signature)][line.index(name) - line.index(claim.tensor)] += 1

    def _habits(self) -> dict[HabitKey, int]:
        found = {}
        for key, counter in self.offsets.items():
            offset, count = counter.most_common(1)[0]
            named = offset < len(key[1])  # the signature must name the operators that the habit passes over
            if named and count >= HABIT_MIN and count >= HABIT_SHARE * counter.total():
                found[key] = offset
        return found

    def _doubtful(self, placed: tuple[str, Observation]) -> bool:
        """Does a habit that this pass has taught speak for another place, or might one say where what fits nothing belongs?"""
        tensor, seen = placed
        if seen.status is Status.UNSUPPORTED:
            return True
        return seen.residual > self.known.tolerance.tie and self._habit_place(seen.claim) not in (None, tensor)

    def _habit_place(self, claim: Claim) -> str | None:
        keys = [(claim.kind, signature) for signature in self._signatures(claim.tensor)]
        offset = next((self.known.habits[key] for key in keys if key in self.known.habits), 0)
        if not offset:
            return None
        line = self._line(claim.tensor)
        at = line.index(claim.tensor) + offset
        return line[at] if 0 <= at < len(line) else None


def _placed(name: str, claim: Claim, status: Status, got: Fit) -> tuple[Observation, Array]:
    return observation(name, claim, status, got), got.values


def _dequantised(claim: Claim) -> bool:
    return "dequant" in claim.affix.casefold()
