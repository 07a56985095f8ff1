"""Regions and the observed graph on random DAGs."""

from __future__ import annotations

import onnx
import pytest
from graph_strategies import dags, model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from bisect_align.model.graph import Graph, graph_of
from bisect_align.model.observed import observe
from bisect_align.model.region import region


def ancestors(graph: Graph, name: str, stop: set[str]) -> set[int]:
    """Nodes above a tensor by naive recursion, not walking past the tensors in `stop`."""
    nodes: set[int] = set()
    at = graph.producer.get(name)
    if at is not None:
        nodes.add(at)
        for read in graph.nodes[at].reads:
            if read not in stop:
                nodes |= ancestors(graph, read, stop)
    return nodes


@given(dags(), st.data())
@settings(max_examples=80, deadline=None)
def test_a_region_is_what_lies_between_its_output_and_its_boundary(source: onnx.ModelProto, data: st.DataObject) -> None:
    graph = graph_of(source)
    if not graph.tensors:
        return
    observed = data.draw(st.sets(st.sampled_from(graph.tensors)))
    output = data.draw(st.sampled_from(graph.tensors))
    part = region(graph, output, observed)
    assert set(part.nodes) == ancestors(graph, output, observed)
    assert list(part.nodes) == sorted(part.nodes)
    boundary, hidden = set(part.boundary), set(part.hidden)
    assert boundary <= observed | set(graph.inputs)
    assert output not in boundary | hidden
    assert not boundary & hidden
    assert not hidden & observed
    for index in part.nodes:  # the boundary closes the region
        for name in graph.nodes[index].reads:
            assert name in boundary or name in hidden or name in graph.constants
    for name in hidden:
        assert graph.producer[name] in part.nodes
    for name in boundary:
        assert set(graph.consumers[name]) & set(part.nodes)


@given(dags(), st.data())
@settings(max_examples=80, deadline=None)
def test_parents_are_the_boundaries_and_all_regions_cover_the_ancestors(source: onnx.ModelProto, data: st.DataObject) -> None:
    graph = graph_of(source)
    if not graph.tensors:
        return
    chosen = data.draw(st.sets(st.sampled_from(graph.tensors)))
    condensed = observe(graph, {*chosen, *graph.inputs, "no such tensor"})
    assert set(condensed.order) == chosen
    assert list(condensed.order) == sorted(chosen, key=graph.order.__getitem__)
    covered: set[int] = set()
    for name in condensed.order:
        part = region(graph, name, chosen)
        covered |= set(part.nodes)
        assert condensed.parents[name] == tuple(b for b in part.boundary if b in graph.order)
        for parent in condensed.parents[name]:
            assert name in condensed.children[parent]
    assert covered == set().union(*(ancestors(graph, name, set()) for name in chosen))
    assert sum(map(len, condensed.parents.values())) == sum(map(len, condensed.children.values()))
    assert set(condensed.deepest) == chosen - {parent for above in condensed.parents.values() for parent in above}


def test_inputs_and_constants_have_empty_regions() -> None:
    graph = graph_of(model([helper.make_node("Neg", ["x"], ["y"])], [value("x")], [value("y")]))
    assert region(graph, "x", set()).nodes == ()
    with pytest.raises(KeyError):
        region(graph, "nowhere", set())


def test_a_sibling_output_can_be_boundary() -> None:
    make = helper.make_node
    nodes = [make("Split", ["x"], ["a", "b"], axis=0), make("Neg", ["a"], ["c"]), make("Add", ["c", "b"], ["y"])]
    graph = graph_of(model(nodes, [value("x")], [value("y", shape=(2,))], opset=13))
    part = region(graph, "y", {"b"})
    assert part.nodes == (0, 1, 2)
    assert part.boundary == ("x", "b")
    assert part.hidden == ("a", "c")


def test_a_deep_chain_needs_no_recursion() -> None:
    count = 3000
    nodes = [helper.make_node("Neg", [f"t{at}" if at else "x"], [f"t{at + 1}"]) for at in range(count)]
    graph = graph_of(model(nodes, [value("x")], [value(f"t{count}")]))
    condensed = observe(graph, {f"t{count}", "t1"})
    assert condensed.parents[f"t{count}"] == ("t1",)
    assert len(region(graph, f"t{count}", {"t1"}).nodes) == count - 1
