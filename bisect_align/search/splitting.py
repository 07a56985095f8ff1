"""Which tensors of a region would halve it, if they were dumped too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the search itself needs neither ONNX nor numpy
    from bisect_align.model.graph import Graph

TRIED = 16  # tensors of a region that are tried exactly: those whose own part is nearest to a half


@dataclass(frozen=True, slots=True)
class Split:
    """Dumping `tensor` turns a region of `nodes` operators into two, of which the larger has `left`."""

    tensor: str
    nodes: int
    left: int


def splits(graph: Graph, regions: Iterable[tuple[str, Collection[int]]], eligible: Set[str], count: int) -> tuple[Split, ...]:
    """At most `count` tensors, best first: each halves the largest part that those before it have left.

    regions: output and node indices of each region that is to be split; eligible: tensors that can be dumped and compared.
    O(count × (16 n + n²/64)) for n nodes.
    """
    parts = [(output, tuple(sorted(nodes))) for output, nodes in regions]
    found: list[Split] = []
    while parts and len(found) < count:
        parts.sort(key=lambda part: (-len(part[1]), part[0]))
        output, nodes = parts.pop(0)
        if len(nodes) < 2:
            break
        best = _halving(graph, output, nodes, eligible - {s.tensor for s in found})
        if best is None:
            continue
        tensor, above, below = best
        found.append(Split(tensor, len(nodes), max(len(above), len(below))))
        parts += [(tensor, above), (output, below)]
    return tuple(found)


def _halving(
    graph: Graph, output: str, nodes: tuple[int, ...], eligible: Set[str]
) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """The tensor that leaves the smallest larger part, with the nodes of its own region and those of the output's, which may share
    some; None where none leaves less than the whole."""
    inside = set(nodes)
    sizes = _ancestors(graph, nodes, inside)
    candidates = [t for i in nodes for t in graph.nodes[i].makes if t in eligible and t != output]
    candidates.sort(key=lambda t: (abs(2 * sizes[graph.producer[t]] - len(nodes)), graph.order[t]))
    best = None
    for tensor in candidates[:TRIED]:
        above, below = (_region(graph, end, inside, without) for end, without in ((tensor, ""), (output, tensor)))
        if len(below) == len(nodes) or len(above) == len(nodes):
            continue
        if best is None or max(len(above), len(below)) < max(len(best[1]), len(best[2])):
            best = tensor, above, below
    return best


def _ancestors(graph: Graph, nodes: tuple[int, ...], inside: Set[int]) -> dict[int, int]:
    """Of each node, how many of the region it needs, itself included. Sets of bits, dropped once nobody reads them any more."""
    sources = {i: {graph.producer[n] for n in graph.nodes[i].reads if graph.producer.get(n) in inside} for i in nodes}
    readers = dict.fromkeys(nodes, 0)
    for made_from in sources.values():
        for source in made_from:
            readers[source] += 1
    needed: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for position, i in enumerate(nodes):
        bits = 1 << position
        for source in sources[i]:
            bits |= needed[source]
            readers[source] -= 1
            if not readers[source]:
                del needed[source]
        sizes[i] = bits.bit_count()
        if readers[i]:
            needed[i] = bits
    return sizes


def _region(graph: Graph, output: str, inside: Set[int], without: str) -> tuple[int, ...]:
    """The nodes that `output` is made by, as far as they are inside and not hidden behind `without`."""
    seen = {graph.producer[output]}
    waiting = list(seen)
    while waiting:
        for name in graph.nodes[waiting.pop()].reads:
            source = graph.producer.get(name)
            if source is not None and name != without and source in inside and source not in seen:
                seen.add(source)
                waiting.append(source)
    return tuple(sorted(seen))
