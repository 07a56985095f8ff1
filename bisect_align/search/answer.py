"""What a search can end with, and every crossing of a graph whose states are all known.

UNKNOWN tensors are contracted: the boundary of a tensor is the set of nearest tensors above it that are not UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bisect_align.result.result import State

if TYPE_CHECKING:  # the search itself needs neither ONNX nor numpy
    from bisect_align.model.observed import ObservedGraph


@dataclass(frozen=True, slots=True)
class Crossing:
    """A BAD tensor whose contracted boundary is all GOOD (empty: only graph inputs stand above).

    boundary: topological order. cleared_unknown: the UNKNOWN tensors between the two, which may hold the cause as well.
    """

    tensor: str
    boundary: tuple[str, ...]
    cleared_unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Clean:
    """Every deepest tensor is GOOD, or where it is UNKNOWN the nearest known ones above it are; `good` names them."""

    good: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing can be said: no tensor is observed, or all are UNKNOWN (`tensors`)."""

    tensors: tuple[str, ...]
    reason: str


Answer: TypeAlias = Crossing | Clean | Missing


def crossings(graph: ObservedGraph, states: Mapping[str, State]) -> tuple[Crossing, ...]:
    """All crossings, in topological order. A tensor without a state counts as UNKNOWN. O(tensors + edges + answer)."""
    below_bad: set[str] = set()  # BAD, or UNKNOWN with a BAD tensor next to it in the contracted graph
    found = []
    for tensor in graph.order:
        state = states.get(tensor, State.UNKNOWN)
        inherits = any(parent in below_bad for parent in graph.parents[tensor])
        if state == State.BAD and not inherits:
            found.append(tensor)
        if state == State.BAD or (state == State.UNKNOWN and inherits):
            below_bad.add(tensor)
    position = {tensor: i for i, tensor in enumerate(graph.order)}
    return tuple(_crossing(graph, states, tensor, position) for tensor in found)


def _crossing(graph: ObservedGraph, states: Mapping[str, State], tensor: str, position: Mapping[str, int]) -> Crossing:
    boundary, unknown = [], []
    seen = set(graph.parents[tensor])
    stack = list(seen)
    while stack:
        above = stack.pop()
        if states.get(above, State.UNKNOWN) != State.UNKNOWN:
            boundary.append(above)
            continue
        unknown.append(above)
        for parent in graph.parents[above]:
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return Crossing(tensor, tuple(sorted(boundary, key=position.__getitem__)), tuple(sorted(unknown, key=position.__getitem__)))
