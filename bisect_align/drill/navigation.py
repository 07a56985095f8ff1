"""Where a drill stands, and every step that it can take: a frozen value, and functions that give the next one. No values, no files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bisect_align.drill.terrain import Terrain, size_of
from bisect_align.errors import UsageError
from bisect_align.result.result import State

TRAIL = 64  # places that `back` remembers


class Sort(StrEnum):
    """Orders of the tensor table."""

    TOPOLOGY = "topology"
    ERROR = "error"
    SCORE = "score"
    NAME = "name"


class Side(StrEnum):
    """Which values of a tensor are shown."""

    ERROR = "error"
    TARGET = "target"
    GOLDEN = "golden"


@dataclass(frozen=True, slots=True)
class Learnt:
    """A state that the run did not need and the drill has found: with its reason, and the relative L2 error behind it."""

    state: State
    reason: str = ""
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """tensor: where one stands; trail: where one came from, last first. reach: generations that the region is widened by.

    marks: states set by hand; learnt: states found by the drill; both win over those of the result. query, sort: of the table.
    anchor: the first end of a cut. side, element, turn: of the values shown; turn: which axes are rows and columns.
    """

    tensor: str
    trail: tuple[str, ...] = ()
    reach: int = 0
    marks: Mapping[str, State] = field(default_factory=dict)
    learnt: Mapping[str, Learnt] = field(default_factory=dict)
    query: str = ""
    sort: Sort = Sort.TOPOLOGY
    anchor: str = ""
    side: Side = Side.ERROR
    element: tuple[int, ...] | None = None
    turn: int = 0


# --- what one sees from here ------------------------------------------------------------------------------------------------
def state(position: Position, terrain: Terrain, tensor: str) -> State:
    """By hand, else found by the drill, else of the result; a graph input is GOOD (it was given)."""
    if tensor in position.marks:
        return position.marks[tensor]
    if tensor in position.learnt:
        return position.learnt[tensor].state
    row = terrain.rows.get(tensor)
    return row.state if row is not None else State.GOOD


def error(position: Position, terrain: Terrain, tensor: str) -> float | None:
    """Accumulated relative L2 error, where it is known."""
    if tensor in position.learnt:
        return position.learnt[tensor].error
    row = terrain.rows.get(tensor)
    return size_of(row.accumulated) if row is not None else 0.0


def listed(position: Position, terrain: Terrain) -> tuple[str, ...]:
    """The tensors of the table: those that the query finds (`good`, `bad`, `unknown` stand for states), in the order asked for."""
    words = position.query.lower().split()
    states = {word for word in words if word.upper() in State.__members__}
    names = terrain.find(" ".join(word for word in words if word not in states))
    found = [n for n in names if n in terrain.rows and (not states or state(position, terrain, n).lower() in states)]
    if position.sort is Sort.NAME:
        return tuple(sorted(found))
    if position.sort is Sort.ERROR:
        return tuple(sorted(found, key=lambda n: -_size(error(position, terrain, n))))
    if position.sort is Sort.SCORE:
        return tuple(sorted(found, key=lambda n: -_size(terrain.rows[n].score)))
    return tuple(found)


def _size(value: float | None) -> float:
    """For sorting: what is not known comes last."""
    return -1.0 if value is None or math.isnan(value) else value


def bad(position: Position, terrain: Terrain) -> tuple[str, ...]:
    """All BAD tensors, in topological order."""
    return tuple(name for name in terrain.rows if state(position, terrain, name) is State.BAD)


# --- steps ------------------------------------------------------------------------------------------------------------------
def go(position: Position, terrain: Terrain, tensor: str) -> Position:
    """Stand on another tensor. Raises UsageError where there is none of that name."""
    if not terrain.knows(tensor):
        near = terrain.find(tensor)[:3]
        hint = f"did you mean {' or '.join(near)}?" if near else "find TEXT searches names and operators"
        raise UsageError(f"the model has no tensor {tensor!r}", hint=hint)
    if tensor == position.tensor:
        return position
    trail = (position.tensor, *position.trail)[:TRAIL]
    return replace(position, tensor=tensor, trail=trail, reach=0, element=None, turn=0)


def back(position: Position) -> Position:
    """Where one stood before. Raises UsageError at the beginning."""
    if not position.trail:
        raise UsageError("there is nothing to go back to")
    first, *rest = position.trail
    return replace(position, tensor=first, trail=tuple(rest), reach=0, element=None, turn=0)


def up(position: Position, terrain: Terrain) -> Position:
    """To what this tensor is computed from: BAD before others, then the largest error. Raises UsageError at the top."""
    return _step(position, terrain, terrain.above(position.tensor), "nothing stands above")


def down(position: Position, terrain: Terrain) -> Position:
    """To what is computed from this tensor, chosen in the same way. Raises UsageError at the bottom."""
    return _step(position, terrain, terrain.below(position.tensor), "nothing in the dump stands below")


def _step(position: Position, terrain: Terrain, choices: tuple[str, ...], otherwise: str) -> Position:
    if not choices:
        raise UsageError(f"{otherwise} {position.tensor!r}")
    return go(position, terrain, max(choices, key=lambda n: _rank(position, terrain, n)))


def _rank(position: Position, terrain: Terrain, name: str) -> tuple[bool, float]:
    return state(position, terrain, name) is State.BAD, _size(error(position, terrain, name))


def following(position: Position, terrain: Terrain) -> Position:
    """To the next culprit, suspect or crossing, round and round. Raises UsageError where there is none."""
    stops = terrain.stops
    if not stops:
        raise UsageError("nobody is blamed: no culprit, no suspect, no crossing", hint="worst and first go to tensors by error")
    at = stops.index(position.tensor) + 1 if position.tensor in stops else 0
    return go(position, terrain, stops[at % len(stops)])


def first_bad(position: Position, terrain: Terrain) -> Position:
    """To the BAD tensor that comes first. Raises UsageError where none is BAD."""
    found = bad(position, terrain)
    if not found:
        raise UsageError("no tensor is BAD")
    return go(position, terrain, found[0])


def worst(position: Position, terrain: Terrain) -> Position:
    """To the tensor with the largest accumulated error. Raises UsageError where nothing was compared."""
    known = [name for name in terrain.rows if error(position, terrain, name) is not None]
    if not known:
        raise UsageError("no tensor was compared")
    return go(position, terrain, max(known, key=lambda n: _rank(position, terrain, n)))


def widen(position: Position, terrain: Terrain) -> Position:
    """Move the boundary of the region one generation up. Raises UsageError where it is all graph inputs already."""
    wider = replace(position, reach=position.reach + 1)
    if terrain.above(position.tensor, wider.reach) == terrain.above(position.tensor, position.reach):
        raise UsageError("the region cannot be widened: its boundary is the graph's inputs, or the model is not there")
    return wider


def narrow(position: Position) -> Position:
    """Move the boundary back down by one. Raises UsageError where the region is as narrow as the dump allows."""
    if not position.reach:
        raise UsageError("the region is as narrow as the dump allows")
    return replace(position, reach=position.reach - 1)


def mark(position: Position, terrain: Terrain, tensor: str, by_hand: State | None) -> Position:
    """Set a state by hand; None takes the mark away. Raises UsageError for a tensor that the dump does not hold."""
    if tensor not in terrain.observed.parents:
        raise UsageError(f"{tensor!r} is not in the dump, so no search can pass through it", hint="mark its neighbours")
    marks = {name: value for name, value in position.marks.items() if name != tensor}
    return replace(position, marks=marks if by_hand is None else {**marks, tensor: by_hand})


def learn(position: Position, found: Mapping[str, Learnt]) -> Position:
    """Remember states that a search has asked for."""
    return replace(position, learnt={**position.learnt, **found})


def valid(position: Position, terrain: Terrain) -> Position:
    """A remembered position without what this result does not know."""
    return replace(
        position,
        trail=tuple(name for name in position.trail if terrain.knows(name)),
        marks={n: s for n, s in position.marks.items() if n in terrain.observed.parents},
        learnt={n: s for n, s in position.learnt.items() if n in terrain.rows},
        anchor=position.anchor if terrain.knows(position.anchor) else "",
        element=None if position.element is not None and min(position.element, default=0) < 0 else position.element,
    )
