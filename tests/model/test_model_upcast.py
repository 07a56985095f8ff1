"""Half-precision models as float32 graphs: names kept, exact weights, rounding only where the model says Cast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graph_strategies import model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bisect_align.model.graph import graph_of
from bisect_align.model.load import load
from bisect_align.model.segment import segment
from bisect_align.model.upcast import half_of, upcast

make = helper.make_node
F32 = TensorProto.FLOAT
HALVES = [TensorProto.FLOAT16, TensorProto.BFLOAT16]
X = np.array([1 / 3, -1 / 7, 1000 / 11, 3.3e-5], np.float32)


def rounded(array: NDArray[Any], kind: int) -> NDArray[Any]:
    return np.asarray(array, np.float32).astype(helper.tensor_dtype_to_np_dtype(kind)).astype(np.float32)


def run(source: onnx.ModelProto, feeds: dict[str, Any], *, optimised: bool = False) -> dict[str, NDArray[Any]]:
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(source.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def wide(source: onnx.ModelProto) -> onnx.ModelProto:
    before = source.SerializeToString()
    made, warnings = upcast(source)
    assert source.SerializeToString() == before
    assert warnings == ()
    onnx.checker.check_model(made)
    kinds = {v.type.tensor_type.elem_type for v in (*made.graph.input, *made.graph.output, *made.graph.value_info)}
    assert not kinds & set(HALVES)
    return made


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("optimised", [False, True])
def test_casts_round_and_everything_else_is_float32(kind: int, optimised: bool) -> None:
    weight = helper.make_tensor("w", kind, [4], [0.1, 0.2, 0.3, 0.4])
    nodes = [
        make("Cast", ["x"], ["h"], to=kind, name="first"),
        make("Mul", ["h", "w"], ["m"]),
        make("Cast", ["m"], ["h2"], to=kind),
        make("Softplus", ["h2"], ["s"]),
        make("Cast", ["s"], ["y"], to=F32),
    ]
    made = wide(model(nodes, [value("x")], [value("y")], [weight]))
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("h", "m", "h2", "s"))
    found = run(made, {"x": X}, optimised=optimised)
    np.testing.assert_array_equal(found["h"], rounded(X, kind))
    np.testing.assert_array_equal(found["m"], rounded(X, kind) * rounded(np.array([0.1, 0.2, 0.3, 0.4]), kind))
    np.testing.assert_array_equal(found["h2"], rounded(found["m"], kind))
    assert not np.array_equal(found["m"], found["h2"])
    np.testing.assert_allclose(found["y"], np.log1p(np.exp(found["h2"].astype(np.float64))), rtol=1e-6)
    assert not np.array_equal(found["y"], rounded(found["y"], kind))
    graph = graph_of(made)
    assert [node.op for node in graph.nodes] == ["Cast", "Mul", "Cast", "Softplus", "Cast"]
    assert {node.domain for node in graph.nodes} == {""}
    assert graph.tensors == ("h", "m", "h2", "s", "y")
    assert graph.nodes[0].name == "first"


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 21])
@pytest.mark.parametrize("ir", [4, 7, 10])
def test_old_models_too(opset: int, ir: int) -> None:
    kind = TensorProto.FLOAT16
    nodes = [make("Cast", ["i"], ["h"], to=kind), make("Neg", ["h"], ["y"])]
    made = wide(model(nodes, [value("i", TensorProto.INT32)], [value("y", kind)], opset=opset, ir=ir))
    number = np.array([1, 2049, -4097, 7], np.int32)
    np.testing.assert_array_equal(run(made, {"i": number})["y"], -rounded(number, kind))


@pytest.mark.parametrize("kind", HALVES)
def test_attributes_that_state_half(kind: int) -> None:
    three = helper.make_tensor("", kind, [1], [3.0])
    nodes = [
        make("RandomNormal", [], ["r"], dtype=kind, shape=[4], seed=1.0),
        make("EyeLike", ["square"], ["e"], dtype=kind),
        make("ConstantOfShape", ["four"], ["c"], value=three),
        make("Constant", [], ["k"], value=helper.make_tensor("", kind, [4], [1.0, 2.0, 3.0, 4.0])),
        make("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        make("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        make("CastLike", ["f", "k"], ["l"]),
        make("CastLike", ["l", "f"], ["b"]),
        make("Sum", ["r", "c", "k", "d", "l"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.array([4]), "four"),
        helper.make_tensor("scale", kind, [], [0.1]),
        numpy_helper.from_array(np.array(0, np.int8), "zero"),
    ]
    ends = [value("x", kind), value("f"), value("square", shape=(2, 2))]
    outs = [value("y", kind), value("e", kind, (2, 2)), value("l", kind), value("b"), value("d", kind), value("c", kind)]
    made = wide(model(nodes, ends, outs, weights, opset=19, ir=9))
    found = run(made, {"x": X, "f": X, "square": np.zeros((2, 2), np.float32)})
    assert {array.dtype for array in found.values()} == {np.dtype("f4")}
    np.testing.assert_array_equal(found["l"], rounded(X, kind))
    np.testing.assert_array_equal(found["c"], np.full(4, 3))
    scale = rounded(np.array(0.1), kind)
    np.testing.assert_array_equal(found["d"], np.clip(np.rint(X / scale), -128, 127).astype(np.float32) * scale)
    assert [node.op for node in graph_of(made).nodes].count("CastLike") == 2


@pytest.mark.parametrize("kind", HALVES)
def test_bodies(kind: int) -> None:
    inner = helper.make_graph(
        [make("Cast", ["acc"], ["r"], to=kind), make("Add", ["r", "step"], ["z"])], "inner", [], [value("z", kind, None)]
    )
    other = helper.make_graph([make("Identity", ["acc"], ["z2"])], "other", [], [value("z2", kind, None)])
    body = helper.make_graph(
        [
            make("If", ["go"], ["next"], then_branch=inner, else_branch=other),
            make("Neg", ["step"], ["minus"]),
            make("CastLike", ["wide", "minus"], ["l"]),
            make("Identity", ["go"], ["still"]),
        ],
        "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("acc", kind, (4,))],
        [value("still", TensorProto.BOOL, ()), value("next", kind, (4,)), value("l", kind, (4,))],
        [helper.make_tensor("step", kind, [4], [0.1] * 4)],
    )
    source = model(
        [make("Neg", ["f"], ["wide"]), make("Loop", ["n", "", "x"], ["y", "all"], body=body)],
        [value("x", kind), value("f")], [value("y", kind), value("all", kind, (2, 4))],
        [numpy_helper.from_array(np.array(2), "n")],
    )  # fmt: skip
    found = run(wide(source), {"x": X, "f": X})
    step = rounded(np.full(4, 0.1), kind)
    wanted = X
    for _ in range(2):
        wanted = rounded(wanted, kind) + step
    np.testing.assert_array_equal(found["y"], wanted)
    np.testing.assert_array_equal(found["all"][0], rounded(-X, kind))


@pytest.mark.parametrize("kind", HALVES)
def test_local_functions(kind: int) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    to = helper.make_node("Cast", ["a"], ["b"])
    to.attribute.append(onnx.AttributeProto(name="to", ref_attr_name="target", type=onnx.AttributeProto.INT))
    shrink = helper.make_function("my", "Shrink", ["a"], ["b"], [to], imports, attributes=["target"])
    call = helper.make_node("Shrink", ["a"], ["c"], domain="my")
    call.attribute.append(onnx.AttributeProto(name="target", ref_attr_name="kind", type=onnx.AttributeProto.INT))
    like = helper.make_function(
        "my", "Like", ["a", "h"], ["d", "e"], [call, make("CastLike", ["a", "h"], ["d"]), make("Add", ["c", "d"], ["e"])],
        imports, attributes=["kind"],
    )  # fmt: skip
    plain = helper.make_function("my", "Plain", ["a"], ["b"], [make("Cast", ["a"], ["b"], to=kind)], imports)
    nodes = [make("Like", ["x", "w"], ["d", "e"], domain="my", kind=kind), make("Plain", ["x"], ["p"], domain="my")]
    outs = [value("d", kind), value("e", kind), value("p", kind)]
    source = model(
        nodes, [value("x")], outs, [helper.make_tensor("w", kind, [1], [1.0])], functions=[shrink, like, plain], domains=("my",)
    )
    found = run(wide(source), {"x": X})
    np.testing.assert_array_equal(found["d"], rounded(X, kind))
    np.testing.assert_array_equal(found["e"], rounded(X, kind) * 2)
    np.testing.assert_array_equal(found["p"], rounded(X, kind))


def test_a_function_that_casts_to_half_in_some_calls_only_is_said_so() -> None:
    kind = TensorProto.FLOAT16
    like = helper.make_function(
        "my", "Like", ["a", "h"], ["d"], [make("CastLike", ["a", "h"], ["d"])], [helper.make_opsetid("", 17)]
    )
    nodes = [make("Like", ["x", "w"], ["p"], domain="my"), make("Like", ["x", "x"], ["q"], domain="my")]
    weight = helper.make_tensor("w", kind, [1], [1.0])
    source = model(nodes, [value("x")], [value("p", kind), value("q")], [weight], functions=[like], domains=("my",))
    made, warnings = upcast(source)
    assert len(warnings) == 1
    assert "Like" in warnings[0]
    np.testing.assert_array_equal(run(made, {"x": X})["q"], X)


@pytest.mark.parametrize("kind", HALVES)
def test_external_half_weights_stay_in_their_file(tmp_path: Path, kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    values = np.arange(4).astype(dtype) / dtype.type(3)
    (tmp_path / "w.bin").write_bytes(values.tobytes())
    source = model([make("Add", ["x", "w"], ["y"])], [value("x", kind)], [value("y", kind)])
    tensor = TensorProto(name="w", data_type=kind, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    source.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(source.SerializeToString())
    graph = load(tmp_path / "m.onnx").graph
    assert graph.upcast_from == dtype
    assert graph.types["w"].dtype == np.float32
    assert not graph.constants["w"].raw_data
    np.testing.assert_array_equal(graph.constant("w"), values.astype(np.float32))
    part = segment(graph, [0], {"x": np.dtype("f4")}, ["y"])
    np.testing.assert_array_equal(run(part, {"x": X})["y"], X + values.astype(np.float32))


def test_float32_models_are_left_alone() -> None:
    assert half_of(model([make("Neg", ["x"], ["y"])], [value("x")], [value("y")])) is None
    nodes = [make("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), make("Cast", ["h"], ["y"], to=F32)]
    assert half_of(model(nodes, [value("x")], [value("y")])) == np.float16


@given(st.lists(st.sampled_from(["Cast", "Neg", "Mul", "Back", "Sqrt"]), min_size=1, max_size=6), st.sampled_from(HALVES))
@settings(max_examples=20, deadline=None)
def test_a_chain_is_rounded_at_its_casts_only(ops: list[str], kind: int) -> None:
    """Numpy is the oracle: float32 arithmetic, rounded to half after each Cast to half."""
    nodes, half, wanted = [], False, np.abs(X)
    for at, op in enumerate(ops):
        before, after = f"t{at}", f"t{at + 1}"
        if op in ("Cast", "Back"):
            half = op == "Cast"
            nodes.append(make("Cast", [before], [after], to=kind if half else F32))
            wanted = rounded(wanted, kind) if half else wanted
        elif op == "Mul":
            nodes.append(make("Mul", [before, "h" if half else "w"], [after]))
            wanted = wanted * (rounded(np.array(0.7), kind) if half else np.float32(0.7))
        elif op == "Neg":
            nodes.append(make("Neg", [before], [after]))
            wanted = -wanted
        else:
            nodes.extend([make("Abs", [before], [f"a{at}"]), make("Sqrt", [f"a{at}"], [after])])
            wanted = np.sqrt(np.abs(wanted))
    weights = [helper.make_tensor("h", kind, [], [0.7]), numpy_helper.from_array(np.float32(0.7), "w")]
    source = model(nodes, [value("t0")], [value(f"t{len(ops)}", kind if half else F32)], weights)
    found = run(wide(source), {"t0": np.abs(X)})
    np.testing.assert_array_equal(found[f"t{len(ops)}"], wanted)
