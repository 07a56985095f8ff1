"""Types that numpy or ONNX Runtime's own conversion lacks, and feeds that are no plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from golden_graphs import make, node, same
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.golden.values import carry, shown

ODD = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int4",
    "uint4",
    "int2",
    "uint2",
]
PLAIN = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


def odd(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def element(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5), (2, 2, 3)])
def test_odd_types_come_out_right_and_go_in_again(name: str, shape: tuple[int, ...]) -> None:
    dtype = odd(name)
    graph = make([node("Cast", ["x"], ["t"], to=element(dtype)), node("Cast", ["t"], ["y"], to=TensorProto.FLOAT)], opset=25)
    x = np.random.default_rng(0).integers(0, 2, shape).astype(np.float32)
    if name == "float8_e8m0fnu":
        x += 1  # it has powers of two only
    expected = x.astype(dtype)
    engine = SegmentEngine(graph)
    got = dict(engine.stream({"x": x}, ["t", "y"]))
    assert same(got["t"], expected)
    assert same(got["y"], expected.astype(np.float32))
    assert same(dict(engine.stream({"t": expected}, ["y"]))["y"], expected.astype(np.float32))
    seen: dict[str, Any] = {}
    engine.local({"x": x}, lambda tensor, value: seen.setdefault(tensor, value))
    assert same(seen["t"], expected)
    assert same(seen["y"], expected.astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from([*ODD, "float4_e2m1fn"]), codes=st.lists(st.integers(0, 255), max_size=9))
def test_carrying_keeps_every_code(name: str, codes: list[int]) -> None:
    dtype = odd(name)
    raw = np.array(codes, np.uint8)
    array = raw.astype(np.float32).astype(dtype) if dtype.itemsize > 1 else raw.view(dtype)
    if name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
        array = (raw & (3 if name.endswith("int2") else 15)).view(dtype)
    back = shown(carry(array))
    assert not isinstance(back, Unavailable)
    assert back.dtype == array.dtype
    assert np.array_equal(back.astype(np.float32), array.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_types_pass(name: str) -> None:
    graph = make([node("Identity", ["x"], ["y"])], {"x": element(name)})
    x = np.arange(6).reshape(2, 3).astype(name)
    assert same(dict(SegmentEngine(graph).stream({"x": x}, ["y"]))["y"], x)


@pytest.mark.parametrize("kind", ["swapped", "strided", "mapped", "readonly", "unaligned", "fortran", "double", "half"])
def test_feeds_need_not_be_plain_arrays(kind: str, tmp_path: Path) -> None:
    graph = make([node("ReduceSum", ["x"], ["total"]), node("Neg", ["x"], ["y"])], outputs=["total", "y"])
    plain = np.random.default_rng(3).standard_normal((7, 1003)).astype(np.float16).astype(np.float32)
    fed: Any = plain
    if kind == "swapped":
        fed = plain.astype(">f4")
    elif kind == "strided":
        fed = np.repeat(plain, 2, axis=1)[:, ::2]
    elif kind == "mapped":
        np.save(tmp_path / "x.npy", plain)
        fed = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif kind == "readonly":
        fed = plain.copy()
        fed.setflags(write=False)
    elif kind == "unaligned":
        room = np.zeros(plain.nbytes + 1, np.uint8)
        fed = room[1:].view(np.float32).reshape(plain.shape)
        fed[...] = plain
    elif kind == "fortran":
        fed = np.asfortranarray(plain)
    elif kind == "double":
        fed = plain.astype(np.float64)
    elif kind == "half":
        fed = plain.astype(np.float16)
    wanted = ["x", "total", "y"]
    expected = dict(SegmentEngine(graph).stream({"x": plain}, wanted))
    got = dict(SegmentEngine(graph).stream({"x": fed}, wanted))
    assert all(same(got[name], expected[name]) for name in wanted)
    assert same(got["y"], -plain)


def test_where_a_buffer_starts_does_not_change_a_sum() -> None:
    graph = make([node("ReduceSum", ["x"], ["y"])])
    x = np.random.default_rng(0).standard_normal((7, 1003)).astype(np.float32)
    room = np.zeros(x.nbytes + 128, np.uint8)
    sums = set()
    for offset in range(0, 64, 4):
        start = -room.ctypes.data % 64 + offset
        moved = room[start : start + x.nbytes].view(np.float32).reshape(x.shape)
        moved[...] = x
        value = SegmentEngine(graph).replay([0], {"x": moved}, ["y"])["y"]
        assert isinstance(value, np.ndarray)
        sums.add(value.tobytes())
    assert len(sums) == 1


def test_zero_dimensional_feeds_stay_zero_dimensional() -> None:
    graph = make([node("Neg", ["x"], ["y"]), node("Shape", ["x"], ["s"])], outputs=["y", "s"])
    got = dict(SegmentEngine(graph).stream({"x": np.float32(2)}, ["y", "s"]))  # type: ignore[dict-item]
    assert same(got["y"], np.array(-2, np.float32))
    assert same(got["s"], np.zeros(0, np.int64))


def test_sequences_pass_between_nodes_and_are_unavailable_outside() -> None:
    graph = make(
        [
            node("SplitToSequence", ["x"], ["q"], axis=0),
            node("SequenceEmpty", [], ["none"]),
            node("SequenceAt", ["q", "one"], ["y"]),
            node("SequenceLength", ["none"], ["n"]),
            node("SequenceInsert", ["none", "y"], ["q2"]),
            node("ConcatFromSequence", ["q2"], ["z"], axis=0),
        ],
        constants={"one": np.array(1)},
        outputs=["z", "n"],
    )
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    got = dict(SegmentEngine(graph).stream({"x": x}, graph.tensors))
    assert isinstance(got["q"], Unavailable)
    assert "sequence" in got["q"].reason
    assert same(got["y"], x[1:2])
    assert same(got["z"], x[1:2])
    assert same(got["n"], np.array(0))
    with pytest.raises(ValueError, match="no tensor"):
        SegmentEngine(graph).local({"x": x}, lambda name, value: x if name == "q" else None)


@pytest.mark.parametrize("full", [True, False])
def test_optionals_pass_between_nodes(full: bool) -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    graph = make(
        [
            node("Optional", ["x"] if full else [], ["p"], type=kind),
            node("OptionalHasElement", ["p"], ["has"]),
            node("OptionalGetElement", ["p"], ["y"]),
            node("Neg", ["y"], ["z"]),
        ],
        outputs=["has", "z"],
    )
    x = np.arange(3, dtype=np.float32)
    got = dict(SegmentEngine(graph).stream({"x": x}, graph.tensors))
    assert isinstance(got["p"], Unavailable)
    assert same(got["has"], np.array(full))
    if full:
        assert same(got["z"], -x)
    else:
        assert isinstance(got["z"], Unavailable)
        assert "OptionalGetElement" in got["z"].reason


@pytest.mark.parametrize("dtype", ["U", "S", "O"])
def test_strings_pass_between_nodes(dtype: str) -> None:
    graph = make(
        [node("Identity", ["x"], ["t"]), node("Equal", ["t", "c"], ["y"])],
        {"x": TensorProto.STRING},
        constants={"c": np.array(["a", "z"], object)},
    )
    got = dict(SegmentEngine(graph).stream({"x": np.array(["a", "b"]).astype(dtype)}, ["x", "c", "t", "y"]))
    assert got["x"] == got["t"] == got["c"] == Unavailable("a string tensor")
    assert same(got["y"], np.array([True, False]))


def test_types_that_inference_does_not_know_are_taken_from_the_values() -> None:
    graph = make(
        [node("Gelu", ["x"], ["t"], domain="com.microsoft"), node("Cast", ["t"], ["y"], to=TensorProto.BFLOAT16)],
        domains=["com.microsoft"],
    )
    assert "t" not in graph.types or graph.types["t"].dtype is None
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    got = dict(SegmentEngine(graph).stream({"x": x}, ["t", "y"]))
    assert isinstance(got["t"], np.ndarray)
    assert same(got["y"], got["t"].astype(ml_dtypes.bfloat16))


def test_large_weights_of_every_kind_are_read_right() -> None:
    weight = np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)
    codes = np.random.default_rng(1).integers(-8, 8, (500, 301)).astype(ml_dtypes.int4)
    graph = make(
        [
            node("MatMul", ["x", "w"], ["y"]),
            node("DequantizeLinear", ["q", "scale"], ["z"]),
            node("Cast", ["half"], ["h"], to=TensorProto.FLOAT),
        ],
        constants={
            "w": weight,
            "q": codes,
            "scale": np.float32(0.5),
            "half": weight.astype(ml_dtypes.bfloat16),
        },
        outputs=["y", "z", "h"],
    )
    got = dict(SegmentEngine(graph).stream({"x": np.eye(300, dtype=np.float32)}, ["w", "y", "z", "h"]))
    assert same(got["w"], weight)
    assert same(got["y"], weight)
    assert same(got["z"], codes.astype(np.float32) * np.float32(0.5))
    assert same(got["h"], weight.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_bodies_run_as_one_node_with_what_they_capture() -> None:
    body = helper.make_graph(
        [node("Identity", ["going"], ["go"]), node("Add", ["carried", "x"], ["sum"]), node("Mul", ["sum", "w"], ["next"])],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, None),
        ],
        [onnx.ValueInfoProto(name="go"), onnx.ValueInfoProto(name="next")],
    )
    graph = make(
        [node("Neg", ["x"], ["start"]), node("Loop", ["count", "", "start"], ["y"], body=body)],
        constants={"count": np.array(3), "w": np.array([1, 2], np.float32)},
    )
    x = np.array([1, 2], np.float32)
    value = -x
    for _ in range(3):
        value = (value + x) * np.array([1, 2], np.float32)
    engine = SegmentEngine(graph)
    assert same(dict(engine.stream({"x": x}, ["y"]))["y"], value)
    assert engine.counters.node_runs == 2
