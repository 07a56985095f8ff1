"""Integers and booleans are compared exactly; a flip under a near-tie of the floats above is benign, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_target import Values, bench_of, model_of, node, normal

from bisect_align.judgement.discrete import SIGN_TEST, compare
from bisect_align.judgement.judge import CONVICT, Judge, Judged
from bisect_align.judgement.precision import PRECISIONS

Array = NDArray[Any]


def judged(
    nodes: list[onnx.NodeProto],
    x: Array,
    target: Array,
    precision: str = "fp16",
    weights: dict[str, Array] = {},  # noqa: B006
    golden: Array | None = None,
) -> Judged:
    """The last tensor's entry is `target`, computed on the target's input `x`; golden: the input that the golden run had."""
    output = nodes[-1].output[0]
    model = model_of(nodes, {"x": x.shape}, weights=weights)
    bench = bench_of(model, {"x": x if golden is None else golden})
    return Judge(bench, Values({"x": x, output: target}), (output,), PRECISIONS[precision]).judge(output)


ARGMAX = [node("ArgMax", "x", "y", axis=-1, keepdims=0)]


def rows(*values: list[float]) -> Array:
    return np.array(values, np.float32)


def test_equal_integers_score_zero() -> None:
    x = normal(1, 4, 9)
    got = judged(ARGMAX, x, x.argmax(-1))
    assert got.value == 0
    assert got.score.statistic == "exact"


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_near_tie_is_excused(precision: str) -> None:
    unit = PRECISIONS[precision].unit
    x = rows([1, 1 - unit / 2, 0, -1], [0, 0.5, 3, 1])
    assert not judged(ARGMAX, x, np.array([1, 2]), precision).convicted


@pytest.mark.parametrize("precision", list(PRECISIONS))
@pytest.mark.parametrize("index", [3, -1, 7])
def test_a_gross_choice_is_convicted_also_out_of_range(index: int, precision: str) -> None:
    x = rows([3, 1, 0, -2], [0, 0.5, 3, 1])
    assert judged(ARGMAX, x, np.array([index, 2]), precision).convicted


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_an_exact_tie_against_the_rule_is_convicted(op: str, axis: int, keepdims: int) -> None:
    """ONNX takes the first of equals; a target that takes the last is wrong where golden and target both have the tie."""
    x = np.array([[5, 5, 5], [5, 5, 5], [5, 5, 5]], np.float32)
    nodes = [node(op, "x", "y", axis=axis, keepdims=keepdims)]
    right = np.zeros((1, 3) if axis == 0 else (3, 1), np.int64)
    if not keepdims:
        right = right.reshape(3)
    assert judged(nodes, x, right).value == 0
    got = judged(nodes, x, right + 2)
    assert got.convicted
    assert "tie" in got.score.note


def test_the_last_of_equals_is_right_where_the_operator_says_so() -> None:
    x = rows([5, 5, 1], [2, 7, 7])
    nodes = [node("ArgMax", "x", "y", axis=-1, keepdims=0, select_last_index=1)]
    assert judged(nodes, x, np.array([1, 2])).value == 0
    assert judged(nodes, x, np.array([0, 1])).convicted


def test_a_tie_that_only_rounding_made_is_excused() -> None:
    """The target's scores are equal because it rounded them; in the golden one of them is larger."""
    golden = rows([1 + 2.0**-13, 1, 0], [1, 1 + 2.0**-13, 0])
    x = golden.astype(np.float16).astype(np.float32)
    assert x[0, 0] == x[0, 1]
    assert not judged(ARGMAX, x, np.array([1, 1]), golden=golden).convicted


def test_comparisons_flip_near_their_threshold_only() -> None:
    x = normal(2, 20, 20)
    x[0, 0] = 0.5 + 2.0**-13
    nodes = [node("Greater", "x half", "y")]
    weights = {"half": np.array(0.5, np.float32)}
    right = x > 0.5
    near, far = right.copy(), right.copy()
    near[0, 0] = False
    assert not judged(nodes, x, near, weights=weights).convicted
    at = np.unravel_index(np.argmax(x), x.shape)
    far[at] = False
    assert judged(nodes, x, far, weights=weights).convicted


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("hidden", [False, True])
def test_the_largest_value_of_an_int8_range_may_have_been_rounded_up(hidden: bool, seed: int) -> None:
    """Calibration may clip it, and need not: what lies a third of a step below a threshold may reach it, half of the range may not."""
    x = np.random.default_rng(seed).uniform(0, 7.9, (4, 64)).astype(np.float32)
    x[seed, :2] = 7.99, 4.0
    nodes = [node("Abs", "x", "h"), node("Less", "h eight", "y")] if hidden else [node("Less", "x eight", "y")]
    for at, convicted in ((0, False), (1, True)):
        y = x < 8
        y[seed, at] = False
        assert judged(nodes, x, y, "int8", {"eight": np.array(8, np.float32)}).convicted is convicted


def test_flips_inside_a_float_region_are_excused_through_it() -> None:
    """The float parent is hidden: jittered replays of the whole region say what may flip."""
    x = normal(3, 40, 40)
    nodes = [node("Tanh", "x", "h"), node("Round", "h", "r"), node("Cast", "r", "y", to=onnx.TensorProto.INT32)]
    h = np.tanh(x)
    near = np.abs(np.abs(h) - 0.5) < 2.0**-12
    right = np.rint(h).astype(np.int32)
    assert not judged(nodes, x, right).convicted
    flipped = np.where(near, np.sign(h) - right, right).astype(np.int32)
    assert not judged(nodes, x, flipped).convicted
    assert judged(nodes, x, right + 1).convicted


QUANTISE = [node("QuantizeLinear", "x scale zero", "y")]
SCALE = {"scale": np.array(0.25, np.float32), "zero": np.array(0, np.int8)}


def test_half_up_instead_of_half_to_even_is_found_by_the_sign_of_its_flips() -> None:
    """Every single flip sits on an exact half, so each is excused; all of them go up."""
    x = ((np.arange(64, dtype=np.float32) - 32) / 8).reshape(8, 8)
    even, up = np.rint(x / 0.25), np.floor(x / 0.25 + 0.5)
    assert np.count_nonzero(even != up) >= SIGN_TEST**2
    assert judged(QUANTISE, x, even.astype(np.int8), "fp32", SCALE).value == 0
    assert judged(QUANTISE, x, up.astype(np.int8), "fp32", SCALE).convicted


def test_flips_in_both_directions_are_excused_on_every_exact_half() -> None:
    """A target that rounds halves some other way, without a bias: none of 1600 may be taken for more than a tie."""
    x = (np.arange(1600, dtype=np.float32) % 200 + 0.5).reshape(40, 40) / 4 - 25
    either = np.floor(x / 0.25) + (np.arange(1600).reshape(40, 40) % 4 < 2)
    got = judged(QUANTISE, x, either.astype(np.int8), "fp32", SCALE)
    assert got.score.introduced > 0
    assert not got.convicted


def test_a_wrong_zero_point_is_convicted() -> None:
    x = normal(4, 8, 8)
    q = np.clip(np.rint(x / 0.25), -128, 127)
    assert judged(QUANTISE, x, (q + 1).astype(np.int8), "fp32", SCALE).convicted


def test_peers_do_not_soften_an_exact_comparison() -> None:
    x = rows([3, 1, 0, -2], [0, 0.5, 3, 1])
    got = judged(ARGMAX, x, np.array([3, 2]))
    assert got.score.fixed
    assert got.factor == 1


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
@settings(max_examples=60)
def test_counts_of_flips(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    predicted, target = rng.integers(-3, 4, (2, size))
    narrow = rng.random(size) < 0.5
    wide = narrow | (rng.random(size) < 0.5)
    flips = compare(target, predicted, narrow, wide)
    assert flips.size >= flips.mismatched >= flips.unexcused >= flips.gross >= 0
    assert flips.up + flips.down <= flips.mismatched
    for op in ("Round", "Greater"):
        assert flips.score(op) >= 100 * flips.unexcused / size
        assert (flips.score(op) > CONVICT) or not flips.gross
    assert compare(target, target, narrow, wide).score("Round") == 0
    mirrored = compare(predicted, target, narrow, wide)
    assert (mirrored.up, mirrored.down, mirrored.sign) == (flips.down, flips.up, flips.sign)
