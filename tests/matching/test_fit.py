"""How well an entry fits a prediction, which layouts are believed, and what is never compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_target import entry, normal

from bisect_align.dumps.entry import Quant
from bisect_align.errors import DumpError
from bisect_align.matching.fit import (
    LEVELS,
    LOOSEST,
    Votes,
    carries_evidence,
    dequantise,
    fit,
    learn,
    like_codes,
    read,
    residual,
    tells_nothing,
)

Array = NDArray[Any]
SEEDS = st.integers(0, 2**32 - 1)
F32 = np.dtype(np.float32)
TIGHT = LEVELS[0][1]


# ---- residual --------------------------------------------------------------------------------------------------------------
@given(SEEDS, st.sampled_from([np.float16, np.float32, np.float64]), st.floats(1e-3, 10))
@settings(max_examples=40)
def test_residual_is_relative_l2(seed: int, dtype: Any, e: float) -> None:
    x = np.random.default_rng(seed).standard_normal((5, 7)).astype(dtype)
    assert residual(x, x) == 0
    y = (x.astype(np.float64) * (1 + e)).astype(dtype)
    assert residual(y, x) == pytest.approx(e, rel=0.02, abs=2e-3)
    assert residual((8 * y).astype(dtype), (8 * x).astype(dtype)) == pytest.approx(residual(y, x), rel=1e-3)


def test_residual_of_special_values() -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, 2], np.float32)
    assert residual(x, x) == 0
    for other in ([1, 0, np.inf, -np.inf, 2], [1, np.nan, -np.inf, -np.inf, 2], [np.nan, 1, np.inf, -np.inf, 2]):
        assert residual(np.array(other, np.float32), x) >= 1


def test_residual_of_zeros() -> None:
    zero = np.zeros(4, np.float32)
    assert residual(zero, zero) == 0
    assert residual(zero + 1, zero) == np.inf
    assert residual(zero, zero + 1) == 1


@given(SEEDS)
@settings(max_examples=30)
def test_residual_of_integers_and_bools_is_the_share_that_differs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 3, (2, 40))
    assert residual(a, b) == pytest.approx(np.count_nonzero(a != b) / 40)
    assert residual(a > 0, a > 0) == 0
    assert residual(np.zeros(0, np.int64), np.zeros(0, np.int64)) == 0


# ---- what the dump teaches -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("level", "place"), [(2e-7, 0), (5e-4, 1), (4e-3, 2), (2e-2, 3)])
def test_tolerance_follows_the_level_of_the_dump_and_not_its_faults(level: float, place: int) -> None:
    healthy = list(level * np.random.default_rng(1).uniform(0.7, 1.3, 9))
    assert learn(healthy) == LEVELS[place][1]
    assert learn([*healthy, 0.5, 0.9, 0.7]) == LEVELS[place][1]
    assert learn([*healthy, np.inf, np.inf, 7.0]) == LEVELS[place][1]


def test_tolerance_knows_nothing_without_evidence() -> None:
    assert learn([]) == LOOSEST
    assert learn([np.inf, 3.0]) == LOOSEST


def test_tolerances_are_in_order() -> None:
    assert [t.fits for _, t in LEVELS] == sorted(t.fits for _, t in LEVELS)
    assert all(t.tie < t.fits for _, t in LEVELS)
    assert LEVELS[-1][1] is LOOSEST


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.zeros((3, 3), np.float32), False),
        (np.full(5, 2.5, np.float32), False),
        (np.full(5, np.nan, np.float32), False),
        (np.array([np.nan, 1, np.inf], np.float32), False),
        (np.array([], np.float32), False),
        (np.array([3.0], np.float32), False),
        (np.array([3, 3, 3]), False),
        (np.array([3, 3, 4]), True),
        (np.array([True, False]), True),
        (np.array([1.0, 2.0, np.nan], np.float32), True),
    ],
)
def test_constants_carry_no_evidence(values: Array, expected: bool) -> None:
    assert carries_evidence(values) is expected


# ---- reading ---------------------------------------------------------------------------------------------------------------
def test_codes_with_their_scale_become_real_values() -> None:
    q = np.array([[0, 128, 255], [1, 2, 3]], np.uint8)
    quant = Quant(np.array(0.5), np.array(128))
    np.testing.assert_array_equal(dequantise(q, quant), (q.astype(np.float32) - 128) / 2)
    np.testing.assert_array_equal(read(entry("t", q, quant=quant), F32, q.shape), (q.astype(np.float32) - 128) / 2)


@given(SEEDS, st.integers(0, 2))
@settings(max_examples=20)
def test_scales_by_channel_go_along_their_axis(seed: int, axis: int) -> None:
    rng = np.random.default_rng(seed)
    q = rng.integers(-128, 128, (3, 4, 5)).astype(np.int8)
    scale, zero = rng.random(q.shape[axis]), rng.integers(-5, 5, q.shape[axis])
    got = dequantise(q, Quant(scale, zero, axis))
    for k in range(q.shape[axis]):
        one = dequantise(q.take(k, axis), Quant(scale[k], zero[k]))
        np.testing.assert_array_equal(got.take(k, axis), one)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_codes_without_a_scale_are_refused_with_the_way_out(dtype: Any) -> None:
    with pytest.raises(DumpError, match="scale"):
        read(entry("t", np.arange(6, dtype=dtype)), F32, (6,))


def test_integers_are_read_from_whole_floats_only() -> None:
    whole, fractions = np.array([0.0, 2.0, -1.0], np.float32), np.array([0.5, 2, -1], np.float32)
    got = read(entry("t", whole), np.dtype(np.int64), (3,))
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, [0, 2, -1])
    with pytest.raises(DumpError, match="fractions"):
        read(entry("t", fractions), np.dtype(np.int64), (3,))
    with pytest.raises(DumpError, match="beyond"):
        read(entry("t", 300 * whole), np.dtype(np.int8), (3,))


def test_a_value_in_another_float_format_is_the_tensors_own() -> None:
    x = normal(1, 3, 4).astype(np.float16)
    got = read(entry("t", x), F32, x.shape)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, x.astype(np.float32))


# ---- layouts ---------------------------------------------------------------------------------------------------------------
def voted(array: Array, prediction: Array, times: int) -> Votes:
    votes = Votes()
    for _ in range(times):
        fit(array, prediction, votes, TIGHT, vote=True)
    return votes


def test_a_layout_that_the_shape_shows_is_repaired_without_a_vote() -> None:
    x = normal(2, 1, 6, 10, 8)
    for laid in (x, x[0], x.transpose(0, 2, 3, 1), x[0].transpose(1, 2, 0), x.reshape(60, 8)):
        got = fit(laid, x, Votes(), TIGHT)
        assert got is not None
        assert got.residual == 0
        np.testing.assert_array_equal(got.values, x)


def test_a_layout_that_the_shape_hides_needs_the_dumps_word() -> None:
    """Square maps: a transposition may be a layout or a fault; only what other entries have shown decides."""
    x = normal(3, 1, 7, 7, 7)
    laid = x.transpose(0, 2, 3, 1)
    alone = fit(laid, x, Votes(), TIGHT)
    assert alone is not None
    assert alone.residual > 0.5
    taught = fit(laid, x, voted(laid, x, 5), TIGHT)
    assert taught is not None
    np.testing.assert_array_equal(taught.values, x)


def test_equal_dims_in_another_order_are_no_flattened_tensor() -> None:
    """(1, H, W, C) of C = H < W: two orders explain the shape, and only one of them the values."""
    tensor = normal(5, 1, 6, 6, 9)
    got = fit(np.ascontiguousarray(tensor.transpose(0, 2, 3, 1)), tensor, Votes(), LEVELS[0][1])
    assert got is not None
    assert np.array_equal(got.values, tensor)


def test_a_reordering_that_is_rarer_than_the_plain_order_is_not_believed() -> None:
    x = normal(4, 9, 9)
    votes = voted(x, x, 6)
    for _ in range(5):
        fit(x.T, x, votes, TIGHT, vote=True)
    got = fit(x.T, x, votes, TIGHT)
    assert got is not None
    np.testing.assert_array_equal(got.values, x.T)


def test_ties_do_not_vote() -> None:
    x = np.ones((1, 5, 5, 5), np.float32)
    votes = voted(x.transpose(0, 2, 3, 1), x, 9)
    y = normal(5, 1, 5, 5, 5)
    got = fit(y.transpose(0, 2, 3, 1), y, votes, TIGHT)
    assert got is not None
    assert got.residual > 0.5


def test_an_entry_that_fits_nothing_is_laid_out_as_the_dumps_others_are() -> None:
    """A fault in a channels-last dump must be compared channels first."""
    x = normal(6, 1, 7, 7, 7)
    votes = voted(x.transpose(0, 2, 3, 1), x, 6)
    wrong = -3 * x
    got = fit(wrong.transpose(0, 2, 3, 1), x, votes, TIGHT)
    assert got is not None
    np.testing.assert_array_equal(got.values, wrong)


@pytest.mark.parametrize("shape", [(1, 6, 10, 9), (1, 5, 10, 8), (7,), (1, 6, 10, 8, 2), ()])
def test_a_shape_that_no_layout_explains_fits_nothing(shape: tuple[int, ...]) -> None:
    assert fit(np.zeros(shape, np.float32), normal(7, 1, 6, 10, 8), Votes(), LOOSEST) is None


@given(SEEDS, st.permutations([0, 1, 2, 3]))
@settings(max_examples=30)
def test_values_are_only_moved_never_changed(seed: int, perm: list[int]) -> None:
    x = np.random.default_rng(seed).standard_normal((2, 3, 4, 5)).astype(np.float32)
    laid = x.transpose(perm)
    got = fit(laid, x, Votes(), TIGHT)
    assert got is not None
    np.testing.assert_array_equal(np.sort(got.values, axis=None), np.sort(x, axis=None))
    np.testing.assert_array_equal(got.fix.apply(laid), got.values)
    np.testing.assert_array_equal(got.values, x)


# ---- what tells nothing ----------------------------------------------------------------------------------------------------
@given(SEEDS, st.floats(1e-4, 0.3), st.integers(-128, 127), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=40)
def test_codes_tell_their_scale_and_zero_point(seed: int, scale: float, zero: int, dtype: Any) -> None:
    q = np.random.default_rng(seed).integers(-128, 128, (6, 11))
    real = ((q - zero) * scale).astype(np.float32)
    found = like_codes(q.astype(dtype), real)
    assert found is not None
    assert found == (pytest.approx(scale, rel=1e-3), zero)


@pytest.mark.parametrize(
    "fault",
    [
        np.rint,
        np.trunc,
        lambda y: y * 2,
        np.zeros_like,
        lambda y: np.rint(20 * normal(7, *y.shape)),
        lambda y: -np.rint(9 * y),
    ],
)
def test_faults_are_no_codes(fault: Any) -> None:
    y = 8 * normal(6, 8, 24)
    assert like_codes(fault(y), y) is None


def test_counts_are_no_codes() -> None:
    y = np.random.default_rng(2).integers(0, 90, (8, 24)).astype(np.float32)
    assert like_codes(3 * y, y) is None


def test_a_text_that_has_lost_its_values_tells_nothing_and_another_zero_does() -> None:
    y = 1e-8 * normal(8, 4, 5)
    printed = replace(entry("t", np.zeros_like(y)), step=1e-6)
    got = fit(np.zeros_like(y), y, Votes(), TIGHT)
    assert got is not None
    assert "1e-06" in tells_nothing(printed, got, y, TIGHT)
    assert not tells_nothing(entry("t", np.zeros_like(y)), got, y, TIGHT)
    assert not tells_nothing(printed, got, 1e4 * y, TIGHT)


# ---- layouts that cut values off -------------------------------------------------------------------------------------------
def test_a_hidden_layout_that_crops_is_taken_only_where_it_fits() -> None:
    """Else the shape is wrong."""
    y = normal(9, 5, 10)
    padded = np.zeros((16, 16), np.float32)
    padded[:5, :10] = y
    got = fit(padded.ravel(), y, Votes(), TIGHT)
    assert got is not None
    assert (got.fix.label, got.residual) == ("nz16", 0)
    assert fit(normal(10, 256), y, Votes(), TIGHT) is None
    assert fit(np.full(256, 2, np.float32), np.full((5, 10), 2, np.float32), Votes(), TIGHT) is None
