"""The nodes between an observed tensor and the observed tensors above it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from bisect_align.model.graph import Graph


@dataclass(frozen=True, slots=True)
class Region:
    """nodes: indices in topological order. boundary: graph inputs, then observed tensors, that the nodes read.

    hidden: tensors made inside and read inside, other than the output and the boundary. Constants are no boundary.
    settled: shape values that the nodes read, which follow from shapes alone (`Graph.settled`): what makes them is not part of the
    region, since it only lends its shape.
    """

    output: str
    nodes: tuple[int, ...]
    boundary: tuple[str, ...]
    hidden: tuple[str, ...]
    settled: tuple[str, ...] = ()


def region(graph: Graph, output: str, observed: Container[str], *, through_shapes: bool = False) -> Region:
    """The region of `output`, which itself counts as not observed; O(region).

    A graph input or a constant has an empty region. Where one node makes several tensors, the region may hold a node that
    makes an observed boundary tensor as well. through_shapes: go on through what is settled, up to whatever lends its shape.
    Raises KeyError where the graph has no such tensor.
    """
    if output not in graph.producer:
        if output in graph.constants or output in graph.inputs:
            return Region(output, (), (), ())
        raise KeyError(output)
    nodes = {graph.producer[output]}
    stack = list(nodes)
    inputs: set[str] = set()
    boundary: set[str] = set()
    inside: set[str] = set()
    settled: set[str] = set()
    while stack:
        for name in graph.nodes[stack.pop()].reads:
            if name in graph.constants:
                continue
            source = graph.producer.get(name)
            if source is None:
                inputs.add(name)
            elif name in observed:
                boundary.add(name)
            elif name in graph.settled and not through_shapes:
                settled.add(name)
            else:
                inside.add(name)
                if source not in nodes:
                    nodes.add(source)
                    stack.append(source)
    position = graph.order.__getitem__
    first = tuple(name for name in graph.inputs if name in inputs)
    made, lent = (tuple(sorted(names, key=position)) for names in (inside, settled))
    return Region(output, tuple(sorted(nodes)), (*first, *sorted(boundary, key=position)), made, lent)
