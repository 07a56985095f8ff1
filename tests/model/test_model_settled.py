"""Shape values that follow from shapes alone: which they are, and that regions end there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graph_strategies import branch, model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.model.cut import cut
from bisect_align.model.graph import Graph, graph_of
from bisect_align.model.observed import observe
from bisect_align.model.region import region
from bisect_align.model.settled import settled_by_shapes

make = helper.make_node
WEIGHTS = {"i0": 0, "i1": 1, "one": [0], "minus": [-1], "hundred": [100], "start": [0], "axis": [0], "half": [2]}


def shaped(
    nodes: list[onnx.NodeProto], outputs: list[str], *, k: bool = False, domains: tuple[str, ...] = (), **weights: Any
) -> onnx.ModelProto:
    """Nodes on x, of unknown dimensions, and on the integer k."""
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in (WEIGHTS | weights).items()]
    inputs = [value("x", shape=("m", "n")), *([value("k", TensorProto.INT64, (1,))] if k else [])]
    return model(nodes, inputs, [onnx.ValueInfoProto(name=n) for n in outputs], held, domains=domains)


def dimension(of: str, tag: str, place: int = 0) -> list[onnx.NodeProto]:
    """Shape of a tensor, one of its dimensions as a vector: shape_<tag>, gather_<tag>, dim_<tag>."""
    return [
        make("Shape", [of], [f"shape_{tag}"]),
        make("Gather", [f"shape_{tag}", f"i{place}"], [f"gather_{tag}"]),
        make("Unsqueeze", [f"gather_{tag}", "one"], [f"dim_{tag}"]),
    ]


@st.composite
def nets(draw: st.DrawFn, most: int = 8) -> onnx.ModelProto:
    """Matrices of 24 elements from x (4, 6), reshaped, sliced, scaled and shifted by what shapes and data give."""
    known = ["x"]
    nodes: list[onnx.NodeProto] = []
    for at in range(draw(st.integers(1, most))):
        a, b, y = draw(st.sampled_from(known)), draw(st.sampled_from(known)), f"y{at}"
        place = draw(st.integers(0, 1))
        kind = draw(st.sampled_from(["plain", "turn", "reshape", "expand", "fill", "scale", "slice", "data", "count"]))
        if kind == "plain":
            nodes.append(make(draw(st.sampled_from(["Neg", "Tanh"])), [a], [y]))
        elif kind == "turn":
            nodes.append(make("Transpose", [a], [y], perm=[1, 0]))
        elif kind == "reshape":
            joined = make("Concat", [f"dim_{at}", "minus"], [f"to_{at}"], axis=0)
            nodes += [*dimension(a, str(at), place), joined, make("Reshape", [b, f"to_{at}"], [y])]
        elif kind == "expand":
            nodes += [make("Shape", [a], [f"shape_{at}"]), make("Expand", [a, f"shape_{at}"], [y])]
        elif kind == "fill":
            nodes += [make("Shape", [a], [f"shape_{at}"]), make("ConstantOfShape", [f"shape_{at}"], [f"fill_{at}"])]
            nodes.append(make("Add", [a, f"fill_{at}"], [y]))
        elif kind == "scale":  # a value that is computed from a shape is no shape
            nodes += [*dimension(a, str(at), place), make("Cast", [f"dim_{at}"], [f"cast_{at}"], to=TensorProto.FLOAT)]
            nodes += [make("Sqrt", [f"cast_{at}"], [f"root_{at}"]), make("Div", [b, f"root_{at}"], [y])]
        elif kind == "slice":
            nodes += [*dimension(a, str(at)), make("Slice", [a, "start", f"dim_{at}", "axis"], [y])]
        elif kind == "data":  # as many as are not zero, and many more
            nodes += [make("Relu", [a], [f"relu_{at}"]), make("NonZero", [f"relu_{at}"], [f"free_{at}"])]
            nodes += [*dimension(f"free_{at}", f"free_{at}", 1), make("Add", [f"dim_free_{at}", "hundred"], [f"end_free_{at}"])]
            nodes.append(make("Slice", [a, "start", f"end_free_{at}", "axis"], [y]))
        else:
            nodes += [make("Mul", ["k", "hundred"], [f"end_free_{at}"])]
            nodes += [make("Slice", [a, "start", f"end_free_{at}", "axis"], [y]), *dimension(y, f"free_{at}")]
        known.append(y)
    read = {name for node in nodes for name in node.input}
    return shaped(nodes, [o for node in nodes for o in node.output if o not in read], k=True)


def feeds(seed: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((4, 6)).astype(np.float32), "k": np.array([1 + seed])}


def whole(graph: Graph, given_: dict[str, NDArray[Any]]) -> tuple[SegmentEngine, Graph, dict[str, NDArray[Any]]]:
    """An engine and a graph that are settled, and all golden values."""
    engine = SegmentEngine(graph)
    golden = {n: v for n, v in engine.stream(given_, graph.tensors) if not isinstance(v, Unavailable)}
    assert golden.keys() == set(graph.tensors)
    return engine, engine.settle({n: golden[n] for n in settled_by_shapes(graph)}), {**golden, **given_}


def above(graph: Graph, name: str, stop: set[str]) -> set[int]:
    """Nodes above a tensor, not walking past those in `stop`."""
    found = {graph.producer[name]}
    for read in graph.nodes[graph.producer[name]].reads:
        if read in graph.producer and read not in stop:
            found |= above(graph, read, stop)
    return found


@given(nets())
@settings(max_examples=40, deadline=None)
def test_what_is_settled_is_the_same_on_other_data_and_what_data_steer_is_not(source: onnx.ModelProto) -> None:
    graph = graph_of(source)
    settled = settled_by_shapes(graph)
    assert not [n for n in settled if "free" in n]
    assert not [n for n in settled if n.startswith(("y", "cast", "root", "fill"))]
    assert not settled.intersection(graph.inputs, graph.constants)
    one, other = (whole(graph, feeds(seed))[2] for seed in (1, 2))
    assert all(np.array_equal(one[name], other[name]) for name in settled)


@given(nets(), st.data())
@settings(max_examples=40, deadline=None)
def test_regions_end_at_what_is_settled_and_replay_to_the_golden_bits(source: onnx.ModelProto, data: st.DataObject) -> None:
    engine, graph, golden = whole(graph_of(source), feeds(3))
    chosen = data.draw(st.sets(st.sampled_from(graph.tensors), min_size=1))
    condensed = observe(graph, chosen)
    for name in condensed.order:
        area = region(graph, name, chosen)
        assert set(area.nodes) == above(graph, name, chosen | graph.settled.keys())
        assert condensed.parents[name] == tuple(b for b in area.boundary if b in graph.order)
        assert set(area.settled) <= graph.settled.keys() - chosen
        assert not set(area.settled) & {*area.boundary, *area.hidden}
        made = engine.replay(area.nodes, {b: golden[b] for b in area.boundary}, [name])[name]
        assert np.array_equal(made, golden[name])
        assert set(region(graph, name, chosen, through_shapes=True).nodes) == above(graph, name, chosen)


@given(nets(), st.data())
@settings(max_examples=20, deadline=None)
def test_a_cut_needs_nothing_but_the_boundary(source: onnx.ModelProto, data: st.DataObject) -> None:
    _, graph, golden = whole(graph_of(source), feeds(4))
    name = data.draw(st.sampled_from([n for n in graph.tensors if n.startswith("y")]))
    area = region(graph, name, {n for n in graph.tensors if n.startswith("y")})
    for origin in (source, None):
        alone = cut(origin, graph, area)
        assert [given_.name for given_ in alone.graph.input] == list(area.boundary)
        assert len(alone.graph.node) <= len(area.nodes)
        session = ort.InferenceSession(alone.SerializeToString(), providers=["CPUExecutionProvider"])
        (made,) = session.run([name], {b: golden[b] for b in area.boundary})
        np.testing.assert_allclose(made, golden[name], rtol=1e-6)


def test_a_pass_that_makes_a_shape_reads_what_it_made() -> None:
    """On a target's tensors of another shape nothing of the golden's creeps in where the shape is computed anew."""
    nodes = [make("Neg", ["x"], ["a"]), *dimension("a", "a"), make("Concat", ["minus", "dim_a"], ["to"], axis=0)]
    engine, graph, _ = whole(
        graph_of(shaped([*nodes, make("Reshape", ["a", "to"], ["y"])], ["y"])), {"x": np.ones((4, 6), np.float32)}
    )
    assert set(graph.settled) == {"shape_a", "gather_a", "dim_a", "to"}
    a = np.ones((8, 3), np.float32)
    below, last = range(1, len(graph.nodes)), [graph.producer["y"]]
    assert engine.replay(below, {"a": a}, ["y"])["y"].shape == (3, 8)  # type: ignore[union-attr]
    assert engine.replay(last, {"a": a}, ["y"])["y"].shape == (6, 4)  # type: ignore[union-attr]
    assert engine.replay(last, {"a": a, "to": np.array([2, 12])}, ["y"])["y"].shape == (2, 12)  # type: ignore[union-attr]
    assert dict(engine.stream({"x": a}, ["y", "to"]))["y"].shape == (3, 8)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("nodes", "settled"),
    [
        ([make("RandomNormalLike", ["x"], ["r"]), make("Shape", ["r"], ["s"])], True),
        ([make("RandomUniform", [], ["r"], shape=[2]), make("Cast", ["r"], ["s"], to=TensorProto.INT64)], False),
        ([make("Compress", ["x", "mask"], ["r"], axis=0), make("Shape", ["r"], ["s"])], False),
        ([make("Unsqueeze", ["k", "one"], ["r"]), make("Squeeze", ["r", "one"], ["s"])], False),
        ([make("Shape", ["x"], ["q"]), make("Unsqueeze", ["q", "one"], ["r"]), make("Squeeze", ["r", "one"], ["s"])], True),
        ([make("Expand", ["x", "k"], ["r"]), make("Shape", ["r"], ["s"])], False),
        (
            [make("If", ["yes"], ["r"], then_branch=branch("b", "x", "Neg"), else_branch=branch("c", "x", "Abs")),
             make("Shape", ["r"], ["s"])],
            False,
        ),
        ([make("SplitToSequence", ["x"], ["q"]), make("SequenceAt", ["q", "i0"], ["r"]), make("Shape", ["r"], ["s"])], False),
        ([make("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]), make("DequantizeLinear", ["q", "scale", "zero"], ["r"]),
          make("Shape", ["r"], ["s"])], True),
        ([make("DynamicQuantizeMatMul", ["x", "w"], ["r"], domain="com.microsoft"), make("Shape", ["r"], ["s"])], True),
        ([make("Range", ["x", "w"], ["r"], domain="com.microsoft"), make("Shape", ["r"], ["s"])], False),
        ([make("Neg", ["x"], ["r"], domain="mine"), make("Shape", ["r"], ["s"])], False),
        ([make("Shape", ["x"], ["s"], domain="mine")], False),
    ],
)  # fmt: skip
def test_what_settles_a_shape(nodes: list[onnx.NodeProto], settled: bool) -> None:
    every = [*nodes, make("ConstantOfShape", ["s"], ["y"])]
    source = shaped(every, ["y"], k=True, domains=("com.microsoft", "mine"), mask=[True], yes=True, w=np.ones((6, 2), np.float32))
    assert ("s" in settled_by_shapes(graph_of(source))) == settled


def test_positions_that_are_looked_up_stay_inside_and_their_lengths_do_not() -> None:
    nodes = [make("Tanh", ["x"], ["a"]), *dimension("a", "a"), make("Range", ["i0", "gather_a", "i1"], ["ids"])]
    nodes += [make("Gather", ["table", "ids"], ["e"]), make("Add", ["a", "e"], ["y"])]
    table = np.arange(60, dtype=np.float32).reshape(10, 6)
    _, graph, _ = whole(graph_of(shaped(nodes, ["y", "dim_a"], table=table)), {"x": np.ones((4, 6), np.float32)})
    area = region(graph, "y", {"a"})
    assert [graph.nodes[i].op for i in area.nodes] == ["Range", "Gather", "Add"]
    assert (area.boundary, area.settled) == (("a",), ("gather_a",))
    assert [graph.nodes[i].op for i in region(graph, "e", {"a"}).nodes] == ["Range", "Gather"]  # and "a" is no parent of it
    assert region(graph, "e", {"a"}).boundary == ()
