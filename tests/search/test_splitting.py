"""Tensors to dump next: each one splits what is left as evenly as any tensor can, and the sizes that it promises are true."""

from __future__ import annotations

import time

import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_target import model_of, node

from bisect_align.model.graph import Graph, graph_of
from bisect_align.model.region import region
from bisect_align.search.splitting import TRIED, splits


def chain(length: int) -> Graph:
    return graph_of(model_of([node("Relu", f"t{k - 1}" if k else "x", f"t{k}") for k in range(length)], {"x": (2, 2)}))


def whole(graph: Graph, output: str, count: int, observed: frozenset[str] = frozenset()) -> list[tuple[str, int, int]]:
    area = region(graph, output, observed)
    eligible = set(graph.tensors) - observed
    return [(s.tensor, s.nodes, s.left) for s in splits(graph, [(output, area.nodes)], eligible, count)]


def test_a_chain_is_halved_and_halved_again() -> None:
    assert whole(chain(16), "t15", 3) == [("t7", 16, 8), ("t11", 8, 4), ("t3", 8, 4)]


def test_what_is_one_node_cannot_be_split() -> None:
    assert whole(chain(1), "t0", 3) == []
    assert whole(chain(2), "t1", 3) == [("t0", 2, 1)]


def test_only_tensors_that_can_be_dumped_are_named() -> None:
    graph = chain(9)
    assert [s.tensor for s in splits(graph, [("t8", range(9))], {"t1"}, 3)] == ["t1"]
    assert splits(graph, [("t8", range(9))], set(), 3) == ()


def test_the_largest_of_several_regions_comes_first() -> None:
    graph = chain(12)
    regions = [("t1", (0, 1)), ("t11", tuple(range(2, 12)))]
    first, second, third = splits(graph, regions, set(graph.tensors), 3)
    assert (first.nodes, first.left, second.nodes, third.nodes) == (10, 5, 5, 5)


def test_a_shortcut_leaves_its_nodes_in_both_parts() -> None:
    """y = f(g(h(x))) + h(x): dumping g's output leaves h in the part of the output too."""
    nodes = [node("Relu", "x", "h"), node("Exp", "h", "g"), node("Tanh", "g", "f"), node("Add", "f h", "y")]
    graph = graph_of(model_of(nodes, {"x": (2, 2)}))
    assert whole(graph, "y", 1) == [("g", 4, 3)] or whole(graph, "y", 1) == [("h", 4, 3)]


@st.composite
def nets(draw: st.DrawFn) -> onnx.ModelProto:
    names, nodes = ["x"], []
    for k in range(draw(st.integers(2, TRIED))):
        a, b = (draw(st.sampled_from(names[-4:])) for _ in range(2))
        nodes.append(node("Add", f"{a} {b}", f"t{k}"))
        names.append(f"t{k}")
    return model_of(nodes, {"x": (2, 2)})


@given(nets(), st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_a_promise_is_kept_and_none_is_better(model: onnx.ModelProto, count: int) -> None:
    graph = graph_of(model)
    output = graph.tensors[-1]
    nodes = set(region(graph, output, frozenset()).nodes)
    inner = [t for t in graph.tensors if graph.producer[t] in nodes and t != output]
    sizes = {t: max(len(region(graph, t, {t}).nodes), len(region(graph, output, {t}).nodes)) for t in inner}
    found = whole(graph, output, count)
    helpful = {t: size for t, size in sizes.items() if size < len(nodes)}
    assert bool(found) == bool(helpful)
    assert len({name for name, _, _ in found}) == len(found) <= count
    assert all(left < before for _, before, left in found)
    if found:
        name, before, left = found[0]
        assert (before, left) == (len(nodes), sizes[name])
        assert left == min(helpful.values())


def test_a_long_region_is_split_in_a_moment() -> None:
    graph = chain(4000)
    start = time.process_time()
    assert whole(graph, "t3999", 3)[0] == ("t1999", 4000, 2000)
    assert time.process_time() - start < 5
