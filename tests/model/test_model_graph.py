"""The index: order, producers, constants, scopes, and what it refuses."""

from __future__ import annotations

from graphlib import TopologicalSorter

import numpy as np
import onnx
import pytest
from graph_strategies import branch, dags, model, value
from hypothesis import given, settings
from onnx import TensorProto, helper, numpy_helper

from bisect_align.errors import ModelError
from bisect_align.model.graph import graph_of

make = helper.make_node


@given(dags())
@settings(max_examples=60, deadline=None)
def test_nodes_come_after_what_they_read_and_nothing_is_lost(source: onnx.ModelProto) -> None:
    before = source.SerializeToString()
    graph = graph_of(source)
    seen: set[str] = set()
    for place, node in enumerate(graph.nodes):
        assert node.index == place
        for name in node.reads:
            assert name in seen or name in graph.constants or name in graph.inputs
            assert node.index in graph.consumers[name]
        seen.update(node.makes)
    assert list(graph.tensors) == [name for node in graph.nodes for name in node.makes]
    assert [graph.order[name] for name in graph.tensors] == list(range(len(graph.tensors)))
    written = {name for node in source.graph.node for name in node.output if name}
    assert written == set(graph.tensors) | {name for name in graph.constants if name in written}
    assert source.SerializeToString() == before


@given(dags())
@settings(max_examples=40, deadline=None)
def test_a_sorted_file_keeps_its_order(source: onnx.ModelProto) -> None:
    nodes = list(source.graph.node)
    maker = {name: at for at, node in enumerate(nodes) for name in node.output}
    needs = {
        at: {maker[n] for n in (*node.input, *(i for a in node.attribute for b in a.g.node for i in b.input)) if n in maker}
        for at, node in enumerate(nodes)
    }
    order = list(TopologicalSorter(needs).static_order())
    del source.graph.node[:]
    source.graph.node.extend(nodes[at] for at in order)
    graph = graph_of(source)
    assert [tuple(n.outputs) for n in graph.nodes] == [tuple(n.output) for n in source.graph.node if n.op_type != "Constant"]


def test_every_form_of_constant_node() -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5.0, 7.0], np.float32), "s"), numpy_helper.from_array(np.array([1, 3])), [2, 2]
    )
    forms = {
        "value": (numpy_helper.from_array(np.arange(3, dtype=np.int8)), np.arange(3, dtype=np.int8)),
        "value_float": (1.5, np.float32(1.5)),
        "value_floats": ([1.0, 2.0], np.array([1, 2], np.float32)),
        "value_int": (3, np.int64(3)),
        "value_ints": ([3, 4], np.array([3, 4])),
        "value_string": ("ab", np.array(b"ab", object)),
        "value_strings": (["a", "b"], np.array([b"a", b"b"], object)),
        "sparse_value": (sparse, np.array([[0, 5], [0, 7]], np.float32)),
    }
    nodes = [make("Constant", [], [name], **{name: given}) for name, (given, _) in forms.items()]
    graph = graph_of(model([*nodes, make("Neg", ["x"], ["y"])], [value("x")], [value("y"), value("value")]))
    assert [node.op for node in graph.nodes] == ["Neg"]
    assert graph.nodes[0].index == 0
    for name, (_, wanted) in forms.items():
        found = graph.constant(name)
        assert found.shape == np.shape(wanted)
        assert found.dtype.kind == np.asarray(wanted).dtype.kind
        if found.dtype.kind == "O":
            texts = [t if isinstance(t, bytes) else str(t).encode() for t in found.ravel()]
            assert texts == list(np.asarray(wanted).ravel())
        else:
            np.testing.assert_array_equal(found, wanted)
            with pytest.raises(ValueError, match="read-only"):
                found[...] = 0
        assert graph.is_constant(name)
    assert not graph.is_constant("y")


def test_sparse_initializers_are_dense() -> None:
    values = numpy_helper.from_array(np.array([2.0], np.float32), "w")
    places = numpy_helper.from_array(np.array([[1, 2]]), "w_at")
    source = model([make("Add", ["x", "w"], ["y"])], [value("x", shape=(2, 3))], [value("y")])
    source.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 3]))
    np.testing.assert_array_equal(graph_of(source).constant("w"), [[0, 0, 0], [0, 0, 2]])
    source.graph.sparse_initializer[0].dims[:] = [1 << 40, 1 << 40]
    with pytest.raises(ModelError, match="too large"):
        graph_of(source)


def test_initializers_that_are_inputs_can_be_overridden() -> None:
    weight = numpy_helper.from_array(np.ones(4, np.float32), "w")
    fixed = numpy_helper.from_array(np.ones(4, np.float32), "v")
    nodes = [make("Add", ["x", "w"], ["a"]), make("Add", ["a", "v"], ["y"])]
    graph = graph_of(model(nodes, [value("x"), value("w")], [value("y")], [weight, fixed]))
    assert graph.inputs == ("x",)
    assert graph.overridable == ("w",)
    other = graph.with_constants({"w": np.full(4, 3.0)})
    np.testing.assert_array_equal(other.constant("w"), np.full(4, 3, np.float32))
    assert other.constant("w").dtype == np.float32
    np.testing.assert_array_equal(graph.constant("w"), np.ones(4))
    with pytest.raises(ModelError, match="override"):
        graph.with_constants({"v": np.ones(4)})


def test_optional_inputs_and_outputs_may_be_absent_and_names_may_repeat() -> None:
    nodes = [
        make("Clip", ["x", "", "top"], ["a"], name="same"),
        make("TopK", ["a", "k"], ["", "i"], name="same"),
        make("Neg", ["a"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.float32(1), "top"), numpy_helper.from_array(np.array([2]), "k")]
    graph = graph_of(model(nodes, [value("x")], [value("y"), value("i", TensorProto.INT64)], weights))
    assert graph.nodes[0].inputs == ("x", "", "top")
    assert graph.nodes[0].reads == ("x", "top")
    assert graph.nodes[1].makes == ("i",)
    assert graph.tensors == ("a", "i", "y")
    assert [node.label for node in graph.nodes] == ["same", "same", "Neg@2"]


def test_an_output_may_be_an_input_or_a_constant() -> None:
    graph = graph_of(model([make("Neg", ["x"], ["y"])], [value("x")], [value("x"), value("y"), value("w")],
                           [numpy_helper.from_array(np.ones(4, np.float32), "w")]))  # fmt: skip
    assert graph.outputs == ("x", "y", "w")


def test_captured_names_respect_local_shadows_and_nesting() -> None:
    inner = helper.make_graph([make("Add", ["deep", "mine"], ["z"])], "inner", [], [value("z")])
    outer = helper.make_graph(
        [make("Neg", ["a"], ["mine"]), make("If", ["cond"], ["o"], then_branch=inner, else_branch=branch("e", "b", "Neg"))],
        "outer", [], [value("o")],
    )  # fmt: skip
    nodes = [
        make("Neg", ["x"], ["a"]), make("Neg", ["x"], ["b"]), make("Neg", ["x"], ["deep"]),
        make("If", ["cond"], ["y"], then_branch=outer, else_branch=branch("q", "a", "Abs")),
    ]  # fmt: skip
    weights = [numpy_helper.from_array(np.array(True), "cond")]
    graph = graph_of(model(nodes[::-1], [value("x")], [value("y")], weights))
    last = graph.nodes[-1]
    assert last.op == "If"
    assert set(last.captured) == {"a", "b", "deep", "cond"}


def test_loop_inputs_are_local_to_the_body() -> None:
    body = helper.make_graph(
        [make("Add", ["state", "bias"], ["next"]), make("Identity", ["go"], ["still"])],
        "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("state")],
        [value("still", TensorProto.BOOL, ()), value("next")],
    )
    loop = make("Loop", ["n", "", "x"], ["y"], body=body)
    weights = [numpy_helper.from_array(np.array(3), "n")]
    graph = graph_of(model([loop, make("Neg", ["x"], ["bias"])], [value("x")], [value("y")], weights))
    assert [node.op for node in graph.nodes] == ["Neg", "Loop"]
    assert graph.nodes[1].captured == ("bias",)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([make("Add", ["x", "b"], ["a"]), make("Neg", ["a"], ["b"]), make("Neg", ["b"], ["y"])], "cycle"),
        ([make("Neg", ["nowhere"], ["y"], name="n7")], "n7.*nowhere"),
        ([make("Neg", ["x"], ["z"])], "graph output 'y'"),
        ([make("Neg", ["x"], ["y"]), make("Abs", ["x"], ["y"])], "made twice"),
        ([make("Neg", ["y"], ["x"]), make("Neg", ["x"], ["y"])], "'x': is made twice"),
        ([make("If", ["cond"], ["y"], then_branch=branch("b", "gone", "Neg"), else_branch=branch("c", "x", "Neg"))], "gone"),
    ],
)
def test_broken_graphs_are_refused(nodes: list[onnx.NodeProto], says: str) -> None:
    source = model(nodes, [value("x")], [value("y")], [numpy_helper.from_array(np.array(True), "cond")])
    with pytest.raises(ModelError, match=says):
        graph_of(source)


def test_types_come_from_the_file_and_from_inference() -> None:
    nodes = [
        make("Reshape", ["x", "to"], ["r"]), make("SequenceConstruct", ["r"], ["s"]),
        make("Odd", ["r"], ["o"], domain="my.own"), make("ArgMax", ["r"], ["y"], axis=1, keepdims=0),
    ]  # fmt: skip
    weights = [numpy_helper.from_array(np.array([2, -1]), "to")]
    source = model(nodes, [value("x", shape=("n", 6))], [value("y", TensorProto.INT64, None)], weights, domains=("my.own",))
    types = graph_of(source).types
    assert types["x"].shape == ("n", 6)
    assert types["x"].size is None
    assert types["r"].shape is not None
    assert types["r"].shape[0] == 2
    assert types["r"].dtype == np.float32
    assert types["s"].kind == "sequence"
    assert types["y"].dtype == np.int64
    assert types["to"].size == 2
    assert "o" not in types or types["o"].kind == "unknown"


def test_randomness_is_no_constant() -> None:
    nodes = [
        make("Neg", ["w"], ["a"]), make("Add", ["a", "w"], ["b"]), make("RandomNormal", [], ["r"], shape=[4]),
        make("Add", ["r", "b"], ["c"]), make("Add", ["c", "x"], ["y"]),
    ]  # fmt: skip
    graph = graph_of(model(nodes, [value("x")], [value("y")], [numpy_helper.from_array(np.ones(4, np.float32), "w")]))
    assert [name for name in ("w", "a", "b", "r", "c", "y") if graph.is_constant(name)] == ["w", "a", "b"]


def test_a_long_chain_is_indexed_quickly() -> None:
    count = 3000
    nodes = [make("Neg", [f"t{at}" if at else "x"], [f"t{at + 1}"]) for at in range(count)]
    graph = graph_of(model(nodes[::-1], [value("x")], [value(f"t{count}")]))
    assert graph.tensors == tuple(f"t{at + 1}" for at in range(count))
