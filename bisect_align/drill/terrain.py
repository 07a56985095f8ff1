"""What there is to walk on: the tensors of a result, who is computed from whom, and why a place is worth a visit.

Pure: it knows a Result and, where the model is still there, its Graph. Without the graph, neighbours are those that the result names.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from bisect_align.model.graph import Graph
from bisect_align.model.observed import ObservedGraph, observe
from bisect_align.model.region import Region, region
from bisect_align.result.result import Culprit, Figures, NodeInfo, RegionInfo, Result, State, Suspect, TensorRow
from bisect_align.session.certify import region_info


@dataclass(frozen=True, eq=False)
class Terrain:
    """result: of a run. graph: of the model that it ran on, None where it is gone."""

    result: Result
    graph: Graph | None = None

    @cached_property
    def rows(self) -> Mapping[str, TensorRow]:
        return {row.name: row for row in self.result.tensors}

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(given.name for given in self.result.inputs)

    @cached_property
    def culprits(self) -> Mapping[str, Culprit]:
        return {culprit.region.output: culprit for culprit in self.result.culprits}

    @cached_property
    def suspects(self) -> Mapping[str, Suspect]:
        return {suspect.region.output: suspect for suspect in self.result.suspects}

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Everything that one can stand on: graph inputs, then the tensors of the model in topological order."""
        return tuple(dict.fromkeys((*self.inputs, *self.rows)))

    @cached_property
    def stops(self) -> tuple[str, ...]:
        """What `next` visits: culprits, then suspects, then crossings that are neither."""
        crossings = (crossing.tensor for crossing in self.result.crossings)
        found = dict.fromkeys((*self.culprits, *self.suspects, *crossings))
        return tuple(name for name in found if name in self.rows)

    @cached_property
    def observed(self) -> ObservedGraph:
        """The graph condensed to the tensors that the dump holds."""
        held = [name for name, row in self.rows.items() if row.entry is not None]
        if self.graph is not None:
            return observe(self.graph, held)
        place = {name: row.order for name, row in self.rows.items()}
        order = tuple(sorted(held, key=place.__getitem__))
        known = self._said_parents
        parents = {
            name: tuple(sorted((p for p in known.get(name, ()) if p in place and place[p] < place[name]), key=place.__getitem__))
            for name in order
        }
        children = {name: tuple(child for child in order if name in parents[child]) for name in order}
        return ObservedGraph(order, parents, children)

    @cached_property
    def _said_parents(self) -> Mapping[str, tuple[str, ...]]:
        """Boundaries that the result itself states."""
        found = {c.tensor: tuple(b.tensor for b in c.boundary) for c in self.result.crossings}
        return found | {r.output: r.boundary for r in self.regions.values()}

    @cached_property
    def regions(self) -> Mapping[str, RegionInfo]:
        """Regions as the result tells them, by output."""
        told = (*(suspect.region for suspect in self.result.suspects), *(culprit.region for culprit in self.result.culprits))
        return {info.output: info for info in told}

    def knows(self, tensor: str) -> bool:
        return tensor in self.rows or tensor in self.inputs

    def region(self, tensor: str, reach: int = 0) -> Region | None:
        """The region of a tensor, its boundary moved `reach` generations of observed tensors up; None without the graph."""
        if self.graph is None or tensor not in self.graph.producer:
            return None
        seen = set(self.observed.order)
        area = region(self.graph, tensor, seen - {tensor})
        for _ in range(reach):
            inner = [name for name in area.boundary if name in seen]
            if not inner:
                break
            seen.difference_update(inner)
            area = region(self.graph, tensor, seen - {tensor})
        return area

    def nodes(self, tensor: str, reach: int = 0) -> tuple[NodeInfo, ...]:
        """The operators of the region, computed constants left out."""
        area = self.region(tensor, reach)
        if area is not None and self.graph is not None:
            return region_info(self.graph, area).nodes
        return self.regions[tensor].nodes if tensor in self.regions else ()

    def above(self, tensor: str, reach: int = 0) -> tuple[str, ...]:
        """The boundary of the region: what the tensor is computed from, graph inputs first."""
        area = self.region(tensor, reach)
        if area is not None:
            return area.boundary
        return tuple(p for p in self._said_parents.get(tensor, ()) if self.knows(p))

    def below(self, tensor: str) -> tuple[str, ...]:
        """The nearest observed tensors that are computed from this one, in topological order."""
        if self.graph is None:
            found = {*self.observed.children.get(tensor, ()), *(t for t in self.observed.order if tensor in self.above(t))}
            if tensor in self.culprits:
                found.update(name for name in self.culprits[tensor].certificate.by if name in self.rows)
            return tuple(sorted(found, key=lambda name: self.rows[name].order))
        held, seen = set(self.observed.order), {tensor}
        found = set()
        waiting = [tensor]
        while waiting:
            for index in self.graph.consumers.get(waiting.pop(), ()):
                for made in self.graph.nodes[index].makes:
                    if made not in seen and (made in held or made not in self.graph.settled):
                        seen.add(made)
                        (found.add if made in held else waiting.append)(made)
        return tuple(sorted(found, key=self.graph.order.__getitem__))

    def ancestors(self, tensor: str) -> tuple[str, ...]:
        """Observed tensors that this one is computed from, nearest first."""
        found = dict.fromkeys(name for name in self.above(tensor) if name in self.observed.parents)
        waiting = list(found)
        for name in waiting:
            for parent in self.observed.parents[name]:
                if parent not in found:
                    found[parent] = None
                    waiting.append(parent)
        return tuple(found)

    def find(self, text: str) -> tuple[str, ...]:
        """Places whose name, node or operator holds all words of the text, in any case. `op:Conv` asks for the operator alone."""
        words = text.lower().split()
        return tuple(name for name in self.places if all(self._holds(name, word) for word in words))

    def _holds(self, name: str, word: str) -> bool:
        row = self.rows.get(name)
        if word.startswith("op:"):
            return row is not None and row.op.lower() == word[3:]
        text = name if row is None else f"{name}\n{row.node}\n{row.op}"
        return word in text.lower()


def size_of(figures: Figures | None) -> float | None:
    """One number to sort errors by: relative L2, infinite where NaN or Inf stands in the wrong place."""
    if figures is None:
        return None
    return math.inf if figures.max_abs == math.inf else figures.rel_l2


def start(terrain: Terrain) -> str:
    """Where to begin: the first culprit, else the first suspect, crossing, BAD tensor, output. "" in an empty result."""
    if terrain.stops:
        return terrain.stops[0]
    bad = [row.name for row in terrain.result.tensors if row.state is State.BAD]
    return next(iter((*bad, *reversed(terrain.places))), "")


def within(graph: ObservedGraph, tensors: Collection[str]) -> ObservedGraph:
    """The observed graph of some tensors and nothing else; these must hold every parent of theirs."""
    order = tuple(name for name in graph.order if name in tensors)
    children = {name: tuple(c for c in graph.children[name] if c in tensors) for name in order}
    return ObservedGraph(order, {name: graph.parents[name] for name in order}, children)
