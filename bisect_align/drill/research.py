"""The search again, by hand: with states that a person has set, or between two tensors that a person has chosen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from bisect_align.drill.navigation import Learnt, Position, learn
from bisect_align.drill.terrain import Terrain, within
from bisect_align.errors import UsageError
from bisect_align.model.observed import ObservedGraph
from bisect_align.result.result import State
from bisect_align.search.answer import Answer
from bisect_align.search.bisection import Bisection

# Finds states of tensors that nobody has compared yet.
Ask = Callable[[Collection[str]], Mapping[str, Learnt]]


def again(position: Position, terrain: Terrain, ask: Ask) -> tuple[Position, Answer]:
    """Search the whole graph; marks win over states. Gives the position with what was learnt, and the certified answer."""
    return _search(position, terrain, terrain.observed, position.marks, ask)


def between(position: Position, terrain: Terrain, top: str, bottom: str, ask: Ask) -> tuple[Position, Answer]:
    """Search from `top`, taken as GOOD, to `bottom`, taken as BAD, whatever their states are.

    Raises UsageError where one of them is not in the dump, or the second is not computed from the first.
    """
    for name in (top, bottom):
        if name not in terrain.observed.parents and name not in terrain.inputs:
            raise UsageError(f"{name!r} is not in the dump: a cut needs two tensors that are")
    above = terrain.ancestors(bottom)
    if bottom in terrain.inputs or (top not in above and top not in _inputs_above(terrain, (bottom, *above))):
        raise UsageError(f"{bottom!r} is not computed from {top!r}", hint="the first tensor of a cut stands above the second")
    part = within(terrain.observed, {bottom, *above})
    given = {bottom: State.BAD} | ({top: State.GOOD} if top in part.parents else {})
    return _search(position, terrain, part, {**position.marks, **given}, ask)


def _inputs_above(terrain: Terrain, tensors: Iterable[str]) -> set[str]:
    return {name for tensor in tensors for name in terrain.above(tensor) if name in terrain.inputs}


def _search(
    position: Position, terrain: Terrain, graph: ObservedGraph, by_hand: Mapping[str, State], ask: Ask
) -> tuple[Position, Answer]:
    """Tell all that is known, then ask for what is not, until the search is certain."""
    search = Bisection(graph)
    for name in graph.order:
        learnt = position.learnt.get(name)
        known = by_hand.get(name) or (learnt.state if learnt is not None else terrain.rows[name].state)
        # UNKNOWN in a result mostly means that the search did not need it: it is asked for again
        if known is not State.UNKNOWN or learnt is not None:
            search.tell(name, known)
    while wanted := search.ask():
        found = dict(ask(wanted))
        position = learn(position, found)
        for name in wanted:
            search.tell(name, found[name].state if name in found else State.UNKNOWN)
    return position, search.answer
