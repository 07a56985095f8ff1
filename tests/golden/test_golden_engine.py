"""Hooks, replays, refusals, randomness, memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import onnx
import pytest
from golden_graphs import WIDTH, make, model_of, node, random_feeds, random_model, same
from onnx import TensorProto, helper

from bisect_align.errors import EngineError, InputsError
from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.golden.sessions import plain_words
from bisect_align.model.graph import Graph, graph_of

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def chain(*ops: str) -> Graph:
    names = ["x", *(f"t{k}" for k in range(len(ops)))]
    return make([node(op, [a], [b], name=f"n{k}") for k, (op, a, b) in enumerate(zip(ops, names, names[1:], strict=False))])


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        (
            "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Erf(13)",
            "Could not find an implementation for Erf(13)",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running MatMul node. Name:'s' Status Message: "
            "matmul_helper.h:59 Compute MatMul dimension mismatch",
            "MatMul dimension mismatch",
        ),
        (
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Add node. Name:'' Status "
            "Message: /src/onnxruntime/core/math/ops.h:560 void onnxruntime::Broadcaster::Append(ptrdiff_t, ptrdiff_t) axis == 1 "
            "was false.\nBy (4) and (5)\n",
            "axis == 1 was false. By (4) and (5)",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:Fatal error: a:B(-1) is not a registered function/op",
            "a:B(-1) is not a registered function/op",
        ),
        ("x" * 1000, "x" * 297 + "..."),
    ],
)
def test_messages_are_plain_words(said: str, plain: str) -> None:
    assert plain_words(RuntimeError(said)) == plain


# The hook


def test_hook_answers_of_another_float_dtype_are_cast_and_others_refused() -> None:
    graph = chain("Neg", "Abs")
    seen: dict[str, Any] = {}

    def answer(dtype: Any) -> Any:
        def hook(name: str, value: Any) -> Any:
            seen[name] = value
            return np.full((3, 4), 3).astype(dtype) if name == "t0" else None

        return hook

    for dtype in (np.float16, np.float64, ">f4"):
        SegmentEngine(graph).local({"x": X}, answer(dtype))
        assert same(seen["t1"], np.full((3, 4), 3, np.float32))
    with pytest.raises(ValueError, match=r"'t0' is float32 in the model and cannot be fed with int64"):
        SegmentEngine(graph).local({"x": X}, answer(np.int64))


def test_a_shape_that_does_not_fit_costs_only_what_depends_on_it() -> None:
    graph = make(
        [
            node("Neg", ["x"], ["a"]),
            node("Add", ["a", "x"], ["b"], name="sum"),
            node("Abs", ["b"], ["c"]),
            node("Exp", ["x"], ["d"]),
        ],
        outputs=["c", "d"],
    )
    seen: dict[str, Any] = {}

    def hook(name: str, value: Any) -> Any:
        seen[name] = value
        return np.zeros((5, 7), np.float32) if name == "a" else None

    SegmentEngine(graph).local({"x": X}, hook)
    assert isinstance(seen["b"], Unavailable)
    assert "node 'sum' (Add)" in seen["b"].reason
    assert "\n" not in seen["b"].reason
    assert "onnxruntime_src" not in seen["b"].reason
    assert seen["c"] == seen["b"]
    assert isinstance(seen["d"], np.ndarray)


def test_an_answer_mends_what_could_not_be_predicted() -> None:
    graph = make([node("RandomNormal", [], ["r"], shape=[3, 4]), node("Add", ["r", "x"], ["y"])])
    seen: dict[str, Any] = {}

    def hook(name: str, value: Any) -> Any:
        seen[name] = value
        return X if name == "r" else None

    SegmentEngine(graph).local({"x": X}, hook)
    assert isinstance(seen["r"], Unavailable)
    assert same(seen["y"], X + X)


def test_a_local_pass_over_some_nodes_reads_its_feeds() -> None:
    graph = chain("Neg", "Abs", "Exp")
    engine = SegmentEngine(graph)
    seen: list[str] = []
    engine.local({"t0": X}, lambda name, value: seen.append(name), nodes=[2, 1])
    assert seen == ["t1", "t2"]
    assert engine.counters.node_runs == 2
    with pytest.raises(ValueError, match="neither fed nor made"):
        engine.local({"x": X}, lambda name, value: None, nodes=[1])


# Replay


def test_a_feed_wins_for_consumers_and_the_made_value_is_returned() -> None:
    graph = chain("Neg", "Abs")
    feeds = {"x": X, "t0": np.full((3, 4), 9, np.float32)}
    engine = SegmentEngine(graph)
    for got in (engine.replay([0, 1], feeds, ["t0", "t1"]), dict(engine.stream(feeds, ["t0", "t1"]))):
        assert same(got["t0"], -X)
        assert same(got["t1"], feeds["t0"])


def test_perturb_sees_what_lies_inside_once_and_wanted_values_stay() -> None:
    graph = make(
        [
            node("Neg", ["x"], ["a"]),
            node("Shape", ["a"], ["s"]),
            node("Exp", ["a"], ["b"]),
            node("Expand", ["b", "s"], ["c"]),
        ]
    )
    seen: list[str] = []

    def perturb(name: str, value: Any) -> Any:
        seen.append(name)
        return value + 1

    got = SegmentEngine(graph).replay([0, 1, 2, 3], {"x": X}, ["a", "c"], perturb=perturb)
    assert seen == ["a", "b"]
    assert same(got["a"], -X)
    plain = SegmentEngine(graph).replay([2], {"a": 1 - X}, ["b"])["b"]
    assert isinstance(plain, np.ndarray)
    assert same(got["c"], plain + 1)


def test_weights_are_replaced() -> None:
    weight = np.eye(WIDTH, dtype=np.float32)
    graph = make([node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "w"], ["y"])], constants={"w": weight})
    x = random_feeds(0)["x"].repeat(2, axis=0)[:WIDTH]
    engine = SegmentEngine(graph)
    got = engine.replay([0, 1], {"x": x}, ["y", "w"], weights={"w": 2 * weight})
    assert same(got["y"], 2 * x + 2 * weight)
    assert same(got["w"], 2 * weight)
    assert same(engine.replay([0, 1], {"x": x}, ["y"])["y"], x + weight)
    with pytest.raises(ValueError, match="not a constant"):
        engine.replay([0, 1], {"x": x}, ["y"], weights={"a": weight})


# What is asked for and given


def test_inputs_and_constants_come_first() -> None:
    graph = make([node("Add", ["x", "w"], ["y"])], constants={"w": X})
    got = list(SegmentEngine(graph).stream({"x": X}, ["y", "w", "x"]))
    assert [name for name, _ in got] == ["x", "w", "y"]
    assert same(got[1][1], X)


def test_constants_alone_need_no_feeds() -> None:
    graph = make([node("Neg", ["w"], ["a"]), node("Add", ["x", "a"], ["y"])], constants={"w": X})
    assert [name for name, _ in SegmentEngine(graph).stream({}, ["w", "a"])] == ["w", "a"]


def test_missing_and_unknown_names_are_refused() -> None:
    graph = chain("Neg", "Abs")
    with pytest.raises(InputsError, match="graph input 'x'"):
        list(SegmentEngine(graph).stream({}, ["t1"]))
    with pytest.raises(ValueError, match="no tensor 'nope'"):
        list(SegmentEngine(graph).stream({"x": X}, ["nope"]))
    with pytest.raises(ValueError, match="none of the nodes makes it"):
        SegmentEngine(graph).replay([0], {"x": X}, ["t1"])
    with pytest.raises(ValueError, match="cannot be fed with int64"):
        list(SegmentEngine(graph).stream({"x": np.zeros(3, np.int64)}, ["t1"]))


@pytest.mark.parametrize(
    ("nodes", "domain", "words", "hint"),
    [
        ([node("Fly", ["x"], ["y"], domain="acme", name="wing")], "acme", "node 'wing' (acme.Fly)", "custom operator"),
        ([node("Erf", ["d"], ["y"], name="e")], "", "Could not find an implementation", "no kernel"),
        ([node("Conv", ["x"], ["y"], name="c")], "", "node 'c' (Conv)", ""),
    ],
)
def test_a_node_that_onnx_runtime_refuses_is_named(
    nodes: list[onnx.NodeProto], domain: str, words: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    inputs = {"x": TensorProto.FLOAT, "d": TensorProto.DOUBLE}
    graph = make(nodes, inputs, domains=[domain] if domain else [])
    with pytest.raises(EngineError) as caught:
        list(SegmentEngine(graph).stream({"x": X, "d": X.astype(np.float64)}, ["y"]))
    text = str(caught.value)
    assert words in text
    assert hint in caught.value.hint
    assert "\n" not in text
    assert "ONNXRuntimeError" not in text
    assert "onnxruntime_src" not in text
    assert capfd.readouterr() == ("", "")


def test_absent_outputs_do_no_harm() -> None:
    graph = make(
        [
            node("Split", ["x"], ["a", "", "c"], axis=1, num_outputs=3),
            node("TopK", ["x", "k"], ["", "i"]),
            node("LayerNormalization", ["x", "s"], ["n", "", "d"]),
        ],
        constants={"k": np.array([2]), "s": np.ones(3, np.float32)},
        outputs=["a", "c", "i", "n", "d"],
    )
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    got = dict(SegmentEngine(graph).stream({"x": x}, graph.tensors))
    assert same(got["c"], x[:, 2:])
    assert same(got["i"], np.tile([2, 1], (3, 1)))
    assert isinstance(got["d"], np.ndarray)


# Randomness


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli", "Dropout", "inside a body"])
def test_unseeded_draws_are_unavailable_and_seeded_ones_repeat(op: str) -> None:
    def graph(**seed: float) -> Graph:
        constants = {"ratio": np.float32(0.5), "yes": np.array(True)}
        if op == "Dropout":
            draw = node(op, ["x", "ratio", "yes"], ["r"], **seed)
        elif op == "inside a body":
            branch = helper.make_graph([node("RandomNormalLike", ["x"], ["o"], **seed)], "b", [], [onnx.ValueInfoProto(name="o")])
            draw = node("If", ["yes"], ["r"], then_branch=branch, else_branch=branch)
        else:
            draw = node(op, ["x"], ["r"], **seed)
        return make([draw, node("Add", ["r", "x"], ["y"])], constants=constants)

    x = np.full((4, 8), 0.5, np.float32)
    for value in dict(SegmentEngine(graph()).stream({"x": x}, ["r", "y"])).values():
        assert isinstance(value, Unavailable)
        assert "random: differs at every run" in value.reason
    engine = SegmentEngine(graph(seed=7.0) if op != "Dropout" else graph(seed=7))
    first, second = (dict(engine.stream({"x": x}, ["r", "y"])) for _ in range(2))
    assert isinstance(first["r"], np.ndarray)
    assert all(same(first[name], second[name]) for name in first)


def test_dropout_at_rest_is_plain() -> None:
    graph = make([node("Dropout", ["x", "ratio", "no"], ["y"])], constants={"ratio": np.float32(0.5), "no": np.array(False)})
    assert same(dict(SegmentEngine(graph).stream({"x": X}, ["y"]))["y"], X)


# Memory


def test_peak_memory_does_not_grow_with_depth() -> None:
    x = np.ones((64, 64), np.float32)
    peaks = []
    for depth in (8, 80):
        engine = SegmentEngine(chain(*["Neg", "Abs"] * (depth // 2)))
        for _ in engine.stream({"x": x}, [f"t{k}" for k in range(depth)]):
            pass
        engine.local({"x": x}, lambda name, value: value.copy() if isinstance(value, np.ndarray) else None)
        engine.replay(range(depth), {"x": x}, [f"t{depth - 1}"], perturb=lambda name, value: value + 1)
        peaks.append(engine.counters.peak_live_bytes)
    assert peaks[0] == peaks[1] <= 3 * x.nbytes


def test_the_stream_does_not_hold_what_it_has_handed_out() -> None:
    engine = SegmentEngine(
        make([node("Neg", ["x"], ["a"]), node("Split", ["a"], ["b", "c"], axis=0, num_outputs=2), node("Abs", ["b"], ["d"])])
    )
    stream = engine.stream({"x": np.ones((4, 4), np.float32)}, ["a", "b", "c", "d"])
    held = {}
    for name in "abcd":
        got, value = next(stream)
        assert got == name
        assert isinstance(value, np.ndarray)
        held[name] = weakref.ref(value)
        del value
        gc.collect()
    assert held["c"]() is None
    assert held["d"]() is None
    next(stream, None)
    assert held["b"]() is None


def test_arrays_handed_out_cannot_be_written() -> None:
    def vandal(name: str, value: Any) -> None:
        with pytest.raises(ValueError, match="read-only"):
            value[...] = 0

    SegmentEngine(chain("Neg", "Abs")).local({"x": X}, vandal)


@pytest.mark.parametrize("memory", [0, 300_000, None])
def test_sessions_are_kept_within_the_budget(memory: int | None) -> None:
    model, feeds = random_model(3), random_feeds(3)
    graph = graph_of(model)
    engine = SegmentEngine(graph, memory=memory)
    first, second = (dict(engine.stream(feeds, graph.tensors)) for _ in range(2))
    assert all(same(first[name], second[name]) for name in first)
    kept = engine._sessions._nbytes
    assert kept <= (1 << 30 if memory is None else memory)
    assert (kept == 0) == (memory == 0)


def test_counters_count() -> None:
    engine = SegmentEngine(chain("Neg", "Abs", "Exp"))
    list(engine.stream({"x": X}, ["t1"]))
    engine.local({"x": X}, lambda name, value: None)
    engine.replay([1, 2], {"t0": X}, ["t2"])
    counters = engine.counters
    assert (counters.stream_passes, counters.local_passes, counters.replays, counters.node_runs) == (1, 1, 1, 7)


def test_an_interrupt_comes_through_and_leaves_the_engine_usable() -> None:
    engine = SegmentEngine(chain("Neg", "Abs"))

    def interrupted(name: str, value: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.local({"x": X}, interrupted)
    assert same(dict(engine.stream({"x": X}, ["t0"]))["t0"], -X)


def test_local_functions_run() -> None:
    function = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)])
    model = model_of([node("Twice", ["x"], ["y"], domain="own")], domains=["own"])
    model.functions.append(function)
    assert same(dict(SegmentEngine(graph_of(model)).stream({"x": X}, ["y"]))["y"], X + X)
