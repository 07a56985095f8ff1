"""Bisection by cuts over the observed graph, as an ask/tell object.

Everything follows from the states told so far. Walk up from a BAD tensor and stop at GOOD ones: what is reached is the *span*.
Whatever stands above a node of the span is in the span or GOOD, so the first BAD tensor of the span, once all of it is known,
has an all-GOOD boundary. Errors need not be monotone for that. A span with nothing left to ask is the certificate itself.

UNKNOWN tensors are walked through and never count. Before any BAD tensor is known, a sink that reads every deepest tensor plays
its part: if its boundary turns out all GOOD, the deepest tensors are.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from bisect_align.result.result import State
from bisect_align.search.answer import Answer, Clean, Crossing, Missing

if TYPE_CHECKING:  # the search itself needs neither ONNX nor numpy
    from bisect_align.model.observed import ObservedGraph


class Bisection:
    """Finds one crossing: `ask()` for tensors, `tell()` their states, until `ask()` returns ().

    A round probes up to `cuts` cuts that split the span evenly. A cut at position p asks for all tensors of the span before p
    that something at or after p reads: all GOOD, and what lies before is cleared; any BAD, and only what the first BAD one was
    made from remains. The first round asks for the deepest tensors too.

    A chain of n tensors needs at most ⌈log_{cuts+1} n⌉ + 1 rounds where none is UNKNOWN. Each probe that came back UNKNOWN adds a
    cut to the rounds that follow, so that long UNKNOWN stretches cost O(log n) rounds, not O(n).
    Work: O(tensors + edges) a round. Told tensors are never asked again. Deterministic.

    rounds: questions put so far. visits: edges walked so far.
    """

    def __init__(self, graph: ObservedGraph, *, cuts: int = 16) -> None:
        """Raises ValueError where cuts < 1 or a tensor stands before one of its parents."""
        if cuts < 1:
            raise ValueError(f"cuts must be at least 1, not {cuts}")
        self.rounds = 0
        self.visits = 0
        self._cuts = cuts
        self._names = graph.order
        self._index = {name: i for i, name in enumerate(graph.order)}
        self._parents = [tuple(self._index[parent] for parent in graph.parents[name]) for name in graph.order]
        if any(parent >= i for i, parents in enumerate(self._parents) for parent in parents):
            raise ValueError("the observed tensors are not in topological order")
        read = {parent for parents in self._parents for parent in parents}
        self._sink = len(self._names)
        self._parents.append(tuple(i for i in range(self._sink) if i not in read))
        self._states: list[State | None] = [None] * (self._sink + 1)
        self._asked: set[str] = set()
        self._lost = 0  # asked tensors that came back UNKNOWN
        self._question: tuple[str, ...] | None = None  # None: states came in since it was made
        self._answer: Answer | None = None

    def ask(self) -> tuple[str, ...]:
        """Tensors whose state is wanted, in topological order; () when done.

        The same question again while nothing is told. Tensors of a question may stay untold (a pass that stops at the first BAD
        one): the next question is made from what is known.
        """
        if self._question is None:
            self._question = self._look()
            self.rounds += bool(self._question)
            self._asked.update(self._question)
        return self._question

    def tell(self, tensor: str, state: State) -> None:
        """The state of any observed tensor, asked for or not. Without effect when done. Raises KeyError for others."""
        i = self._index[tensor]
        if self._answer is None:
            self._lost += state == State.UNKNOWN and tensor in self._asked and self._states[i] is None
            self._states[i] = State(state)
            self._question = None

    @property
    def answer(self) -> Answer:
        """The certified answer. Raises RuntimeError while there is something to ask."""
        if self._answer is None and self._question is None:
            question = self._look()
            self._question = None if question else ()
        if self._answer is None:
            raise RuntimeError("the search is not done: ask() has more to ask")
        return self._answer

    def _look(self) -> tuple[str, ...]:
        """The next question, or () with the answer set."""
        bottom = self._sink
        span, good = self._walk(bottom)
        first_bad = next((i for i in reversed(span) if self._states[i] == State.BAD), None)
        if first_bad is not None:
            bottom = first_bad
            span, good = self._walk(bottom)
        if any(self._states[i] is None for i in span):
            return tuple(self._names[i] for i in self._probe(bottom, span))
        self._answer = self._conclude(bottom, span, good)
        return ()

    def _walk(self, bottom: int) -> tuple[list[int], list[int]]:
        """The span above `bottom` and the GOOD tensors that bound it, both deepest first."""
        reached = bytearray(bottom + 1)
        reached[bottom] = 1
        span: list[int] = []
        good: list[int] = []
        for i in range(bottom, -1, -1):
            if not reached[i]:
                continue
            if self._states[i] == State.GOOD:
                good.append(i)
                continue
            if i != bottom:
                span.append(i)
            self.visits += len(self._parents[i])
            for parent in self._parents[i]:
                reached[parent] = 1
        return span, good

    def _probe(self, bottom: int, span: list[int]) -> list[int]:
        """The tensors to ask for: all that one of the cuts through the untold tensors of the span separates from a reader."""
        untold = [i for i in reversed(span) if self._states[i] is None]
        rank = {i: r for r, i in enumerate(untold)}
        rank[bottom] = m = len(untold)
        last: dict[int, int] = {}  # rank of the last reader, UNKNOWN readers standing for their own
        for i in (bottom, *span):
            reader = rank[i] if i in rank else last[i]
            self.visits += len(self._parents[i])
            for parent in self._parents[i]:
                last[parent] = max(last.get(parent, 0), reader)
        parts = min(self._cuts + self._lost, m) + 1
        cuts = {share * (m + 1) // parts for share in range(1, parts)}
        if bottom == self._sink:
            cuts.add(m)
        places = [*sorted(cuts), m + 1]
        return [i for i in untold if places[bisect_right(places, rank[i])] <= last[i]]

    def _conclude(self, bottom: int, span: list[int], good: list[int]) -> Answer:
        """The answer once only UNKNOWN tensors stand between `bottom` and GOOD ones."""
        boundary = tuple(self._names[i] for i in reversed(good))
        unknown = tuple(self._names[i] for i in reversed(span))
        if bottom != self._sink:
            return Crossing(self._names[bottom], boundary, unknown)
        if boundary:
            return Clean(boundary)
        return Missing(
            unknown, f"none of the {len(unknown)} observed tensors can be compared" if unknown else "no tensor is observed"
        )
