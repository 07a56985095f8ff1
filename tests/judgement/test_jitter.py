"""Perturbed values are values that the target may have held: no sign turns, zero and infinity stay, shapes stay, clipping happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_target import Values, bench_of, model_of, node, normal

from bisect_align.judgement.jitter import Jitter, seed, weights_of
from bisect_align.judgement.judge import Judge
from bisect_align.judgement.precision import FP16, FP32, INT8, PRECISIONS, print_step, round_to
from bisect_align.judgement.shadow import accumulated_noise
from bisect_align.model.graph import graph_of
from bisect_align.model.operators import MOVES

Array = NDArray[np.float32]
CHAIN = model_of([node("Relu", "x", "h"), node("Sqrt", "h", "y")], {"x": (4, 64)})


def jitter(precision: str, k: int = 0, low: float = -3.0, high: float = 3.0) -> Jitter:
    return Jitter(graph_of(CHAIN), PRECISIONS[precision], lambda _: (low, high), seed("test", k))


def moves(some: Jitter) -> dict[str, Callable[[Array], Array]]:
    """Whatever moves a value: on the boundary (read by anyone, or in a range of its own), inside, and as a constant."""
    return {
        "boundary": lambda x: some.boundary("h", x),
        "calibrated": lambda x: some.boundary("x", x),
        "hidden": lambda x: some.hidden("y", x),
        "weight": lambda x: some.weight("w", x, False),
        "matrix": lambda x: some.weight("w", x, True),
    }


@given(precision=st.sampled_from(sorted(PRECISIONS)), k=st.integers(0, 50), scale=st.floats(1e-9, 1e3))
@settings(max_examples=60, deadline=None)
def test_no_sign_turns_and_zero_stays_zero(precision: str, k: int, scale: float) -> None:
    x = normal(k, 200, scale=scale)
    x[:20] = 0
    for moved in (jitter(precision, k).boundary("x", x), jitter(precision, k).hidden("h", x)):
        assert moved.dtype == x.dtype
        assert not (np.sign(moved) * np.sign(x) < 0).any()
        assert not moved[:20].any()


@pytest.mark.parametrize("precision", sorted(PRECISIONS))
def test_infinite_values_do_not_become_nan(precision: str) -> None:
    mask = np.array([0, -np.inf, 1, np.inf, -2], np.float32)
    some = jitter(precision)
    for k in range(5):
        assert not np.isnan(some.weight("w", mask, False)).any(), k
        assert not np.isnan(some.boundary("x", mask)).any(), k
        assert not np.isnan(some.hidden("h", mask)).any(), k


@pytest.mark.parametrize("precision", sorted(PRECISIONS))
@pytest.mark.parametrize("whole", [False, True], ids=["range of the rest", "range of the mask"])
def test_a_mask_of_the_lowest_number_that_there_is_stays_finite(precision: str, whole: bool) -> None:
    low, high = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)
    x = np.tile(np.array([low, 0, 1.5, high, -2], np.float32), 40)
    x[:20] = normal(1, 20)  # on no grid
    for k in range(8):
        some = jitter(precision, k, *((low, high) if whole else (-3.0, 3.0)))
        for name, moved in moves(some).items():
            assert np.isfinite(moved(x)).all(), (k, name)


@given(k=st.integers(0, 1000), name=st.sampled_from(["boundary", "hidden", "weight"]))
@settings(max_examples=60, deadline=None)
def test_of_tf32_every_second_draw_cuts_off_and_no_other_format_does(k: int, name: str) -> None:
    x = normal(k, 200)
    bench = bench_of(CHAIN, {"x": normal(0, 4, 64)})
    for precision in PRECISIONS.values():
        moved = moves(bench.jitter(precision, "y", "", k))[name](x)
        inwards = np.abs(moved) < np.abs(x)
        assert inwards.any()
        assert (np.abs(moved) <= np.abs(x)).all() == (precision.name == "tf32" and k % 2 == 1)


@pytest.mark.parametrize("op", ["Relu", "Transpose", "MaxPool", "Abs", "Tanh", "Exp"])
@pytest.mark.parametrize("precision", sorted(PRECISIONS))
def test_what_only_moves_values_rounds_none_but_int8_quantises_anew(precision: str, op: str) -> None:
    pool = {"kernel_shape": [1]} if op == "MaxPool" else {}
    graph = graph_of(model_of([node(op, "x", "h", **pool), node("Sqrt", "h", "y")], {"x": (1, 4, 64)}))
    h = normal(1, 1, 4, 64)
    moved = Jitter(graph, PRECISIONS[precision], lambda _: (-3.0, 3.0), seed("test")).hidden("h", h)
    assert np.array_equal(moved, h) == (op in MOVES and precision != "int8")


def test_calibration_may_clip_what_int8_does_not_show() -> None:
    x = np.linspace(-3, 3, 400, dtype=np.float32)
    peaks = [float(jitter("int8", k).hidden("h", x).max()) for k in range(16)]
    assert min(peaks) < 2.85
    assert min(peaks) > 2.6


@given(high=st.floats(0.1, 100), amount=st.sampled_from([1.0, 2.0, 4.0]))
@settings(max_examples=30, deadline=None)
def test_int8_may_round_up_the_largest_value_of_a_range_by_half_a_step(high: float, amount: float) -> None:
    x = np.full(500, high, np.float32)
    some = (replace(jitter("int8", k, 0.0, high), amount=amount) for k in range(400))
    peak = max(float(one.hidden("h", x).max()) for one in some)
    assert 0 < peak - high <= amount * 0.5 * high / 255 * 1.01


def test_what_float16_loses_near_zero_moves_what_reads_it() -> None:
    x = np.full(100, 3e-7, np.float32)
    assert float(np.abs(jitter("fp16").boundary("x", x) - x).max()) > 1e-8
    assert float(np.abs(jitter("fp32").boundary("x", x) - x).max()) < 1e-12


def test_the_root_of_what_int8_rounded_stays_a_number() -> None:
    x = np.abs(normal(3, 4, 64))
    x[0] = 0
    bench = bench_of(CHAIN, {"x": x})
    noise = accumulated_noise(bench, {"x": x}, ("h", "y"), INT8)
    assert 0 < noise["y"].relative < 1


def test_what_a_shape_is_computed_with_is_no_weight() -> None:
    resize = model_of(
        [node("Mul", "factor one", "scales"), node("Resize", "x - scales", "big"), node("Mul", "big gain", "y")],
        {"x": (1, 2, 5, 5)},
        weights={"factor": np.array([1, 1, 2, 2], np.float32), "one": np.ones(4, np.float32), "gain": np.float32(1.5)},
    )
    graph = graph_of(resize)
    assert set(weights_of(graph, tuple(range(len(graph.nodes))))) == {"gain"}
    x = normal(1, 1, 2, 5, 5)
    noise = accumulated_noise(bench_of(resize, {"x": x}), {"x": x}, ("big", "y"), FP16)
    assert 0 < noise["y"].relative < 0.01


@given(decimals=st.integers(4, 7), k=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_printed_values_show_their_decimals(decimals: int, k: int) -> None:
    x = normal(k, 300, scale=0.1)
    assert print_step(np.round(x.astype(np.float64), decimals).astype(np.float32)) == pytest.approx(10.0**-decimals)
    assert print_step(x) == 0
    assert print_step((np.round(x * 256) / 256).astype(np.float32)) == 0


def test_a_text_of_six_decimals_is_no_wrong_result() -> None:
    model = model_of([node("Exp", "x", "e"), node("Mul", "e c", "y")], {"x": (4, 64)}, weights={"c": np.float32(3)})
    x = -np.abs(normal(5, 4, 64, scale=6))
    e = np.round(np.exp(x), 6).astype(np.float32)
    bench = bench_of(model, {"x": x})
    judge = Judge(bench, Values({"x": x, "e": e, "y": np.round(3 * np.exp(x), 6).astype(np.float32)}), ("e", "y"), FP32)
    assert not judge.judge("e").convicted
    assert not judge.judge("y").convicted


def test_a_weight_beyond_float16_is_no_way_of_rounding() -> None:
    w = np.array([1e-3, 1.0, 7e4, -1e8], np.float32)
    rounded = round_to(w, "fp16")
    assert np.isfinite(rounded).all()
    assert rounded[0] == np.float32(np.float16(1e-3))
    model = model_of(
        [node("BatchNormalization", "x s b m v", "y")],
        {"x": (1, 2, 8, 8)},
        weights={
            "s": np.ones(2, np.float32),
            "b": np.zeros(2, np.float32),
            "m": np.zeros(2, np.float32),
            "v": np.float32([1e8, 1e8]),
        },
    )
    x = normal(2, 1, 2, 8, 8, scale=1000)
    wrong = np.zeros_like(x)  # divided by the root of an infinite variance
    assert Judge(bench_of(model, {"x": x}), Values({"x": x, "y": wrong}), ("y",), FP16).judge("y").convicted


def test_a_table_step_of_a_bounded_activation_is_no_lost_signal() -> None:
    model = model_of([node("Sigmoid", "x", "y")], {"x": (4, 64)})
    x = normal(4, 4, 64) - 10
    y = (1 / (1 + np.exp(-x)) + 4e-5 * normal(6, 4, 64)).astype(np.float32)
    assert not Judge(bench_of(model, {"x": x}), Values({"x": x, "y": y}), ("y",), FP16).judge("y").convicted


def test_a_norm_of_rounded_values_may_be_off_to_one_side() -> None:
    nodes = [node("Mul", "x x", "h"), node("Sub", "h x", "g"), node("ReduceL2", "g axes", "y", keepdims=0)]
    model = model_of(nodes, {"x": (1500, 16)}, weights={"axes": np.array([1])})
    x = normal(8, 1500, 16)
    right = np.linalg.norm(x * x - x, axis=1)
    step = float(right.max()) / 255
    y = (np.round(right / step + 0.35) * step).astype(np.float32)
    judged = Judge(bench_of(model, {"x": x}), Values({"x": x, "y": y}), ("y",), INT8).judge("y")
    assert judged.score.statistic != "rounding"


def test_float16_hardware_may_flush_what_is_too_small_but_not_the_signal() -> None:
    model = model_of([node("Mul", "x s", "y")], {"x": (8, 64)}, weights={"s": np.float32(1)})
    x = normal(9, 8, 64, scale=0.05)
    x[:4] *= 2e-4
    rounded = x.astype(np.float16).astype(np.float32)
    flushed = np.where(np.abs(rounded) < 2.0**-14, 0, rounded).astype(np.float32)
    assert not Judge(bench_of(model, {"x": x}), Values({"x": x, "y": flushed}), ("y",), FP16).judge("y").convicted
    tiny = x * np.float32(1e-3)
    assert Judge(bench_of(model, {"x": tiny}), Values({"x": tiny, "y": 0 * tiny}), ("y",), FP16).judge("y").convicted


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_what_makes_numbers_of_integers_rounds_them(precision: str) -> None:
    """A half format holds whole numbers up to 256 or 2048 only; before the Cast nobody rounded them."""
    chain = model_of([node("Cast", "n", "h", to=1), node("Sin", "h", "y")], {"n": (4, 64)})
    x = np.arange(3000, 3256, dtype=np.float32)
    some = Jitter(graph_of(chain), PRECISIONS[precision], lambda _: (0.0, 4000.0), seed("cast"))
    assert float(np.abs(some.hidden("h", x) - x).max()) > 0.5


def test_a_bounded_activation_of_int8_may_come_from_a_table_that_holds_all_of_it() -> None:
    chain = model_of([node("Sigmoid", "x", "h"), node("Sqrt", "h", "y")], {"x": (4, 64)})
    some = Jitter(graph_of(chain), INT8, lambda _: (0.0, 0.02), seed("table"))
    x = np.full(400, 0.015, np.float32)
    assert float(np.abs(some.hidden("h", x) - x).max()) > 1e-3
