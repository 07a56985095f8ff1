"""What a number format does to values: units, level grids, and the ways in which weights are rounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisect_align.judgement.precision import (
    BF16,
    BOUNDED,
    FP16,
    FP32,
    INT8,
    LADDER,
    PRECISIONS,
    TF32,
    WEIGHT_HYPOTHESES,
    grid_step,
    round_to,
    step_of,
    storing_cost,
)

SEEDS = st.integers(0, 2**32 - 1)
FLOATS = [p for p in PRECISIONS.values() if not p.stepped]


def drawn(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_ladder_goes_from_fine_to_coarse() -> None:
    units = [p.unit for p in LADDER if not p.stepped]
    assert units == sorted(units)
    assert LADDER[-1] is INT8
    assert FP32.unit < FP16.unit < TF32.unit < BF16.unit
    assert [p.name for p in PRECISIONS.values() if p.stepped] == ["int8"]
    assert set(WEIGHT_HYPOTHESES) == set(PRECISIONS)


@given(SEEDS, st.floats(1e-6, 1e3), st.integers(-128, 127), st.integers(3, 256))
@settings(max_examples=150)
def test_integers_times_a_scale_are_a_grid_of_that_step(seed: int, scale: float, zero: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    q = rng.integers(0, levels, 200)
    q[:3] = 0, 1, levels - 1  # two neighbours, so that the spacing itself is there to be seen
    if levels == 3:
        q[:3] = 0, 1, 2
    real = ((q - zero) * np.float32(scale)).astype(np.float32)
    step = grid_step(real)
    if np.unique(q).size < 3:
        assert step is None
    else:
        assert step == pytest.approx(np.float32(scale), rel=1e-3)
        assert step_of(real, -1e9, 1e9) == step


@given(SEEDS, st.integers(32, 400), st.sampled_from(["normal", "uniform", "exponential"]))
@settings(max_examples=100)
def test_random_floats_are_no_grid(seed: int, size: int, law: str) -> None:
    rng = np.random.default_rng(seed)
    values = {"normal": rng.standard_normal, "uniform": rng.random, "exponential": rng.standard_exponential}[law](size)
    assert grid_step(values.astype(np.float32)) is None


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 1.0], [np.nan] * 5, [np.inf, 1.0, 2.0], list(range(300))])
def test_what_cannot_be_spaced_is_no_grid(values: list[float]) -> None:
    assert grid_step(np.array(values, np.float32)) is None


def test_special_values_do_not_hide_a_grid() -> None:
    assert grid_step(np.array([np.nan, 0, 0.5, np.inf, 1.5, 4.0], np.float32)) == 0.5


@given(st.floats(-1e4, 1e4), st.floats(0, 1e4))
def test_the_step_of_a_range_spans_it_and_zero_in_255(low: float, width: float) -> None:
    step = step_of(None, low, low + width)
    span = max(low + width, 0.0) - min(low, 0.0)
    assert step > 0
    assert 255 * step >= span * (1 - 1e-9)


@pytest.mark.parametrize("precision", FLOATS, ids=lambda p: p.name)
@given(seed=SEEDS, scale=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=20)
def test_storing_a_value_costs_at_least_its_rounding(precision: object, seed: int, scale: float) -> None:
    """Whoever only rounds to the format stays within the cost, element by element."""
    y = scale * drawn(seed, 6, 20)
    how = {"fp32": None, "tf32": "fp16", "fp16": "fp16", "bf16": "bf16"}[precision.name]  # type: ignore[attr-defined]
    rounded = y if how is None else round_to(y, how)
    d = np.abs(rounded.astype(np.float64) - y)
    assert np.all(d <= storing_cost(precision, y.astype(np.float64), "Add", 0.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=lambda p: p.name)
def test_the_cost_of_storing_is_never_zero(precision: object) -> None:
    assert np.all(storing_cost(precision, np.zeros((3, 4)), "Relu", 0.1) > 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("op", sorted(BOUNDED))
def test_table_lookups_cost_more_where_the_format_is_finer_than_the_table(op: str) -> None:
    y = np.full((2, 3), 1e-3)
    assert np.all(storing_cost(FP32, y, op, 0.0) > 10 * storing_cost(FP32, y, "Add", 0.0))


@given(seed=SEEDS, how=st.sampled_from(["fp16", "bf16", "bf16 truncated", "int8 channel", "int8 tensor"]))
@settings(max_examples=60)
def test_rounding_weights(seed: int, how: str) -> None:
    w = drawn(seed, 4, 3, 3)
    got = round_to(w, how)
    assert got.dtype == np.float32
    assert got.shape == w.shape
    np.testing.assert_array_equal(np.sign(got) * np.sign(w) >= 0, True)
    if how == "int8 tensor":
        assert np.abs(got - w).max() <= np.abs(w).max() / 127 * 0.501
        assert np.unique(got).size <= 255
    elif how == "int8 channel":
        peak = np.abs(w).max(axis=(1, 2), keepdims=True)
        assert np.all(np.abs(got - w) <= peak / 127 * 0.501)
    else:
        np.testing.assert_array_equal(round_to(got, how), got)
        unit = {"fp16": 2.0**-11, "bf16": 2.0**-8, "bf16 truncated": 2.0**-7}[how]
        assert np.all(np.abs(got - w) <= unit * np.abs(w) + 2.0**-25)
        if how == "bf16 truncated":
            assert np.all(np.abs(got) <= np.abs(w))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1), st.sampled_from([-1, 1]))
@settings(max_examples=100)
def test_no_half_format_makes_a_finite_weight_infinite(values: list[float], sign: int) -> None:
    """A mask of the lowest float32 would be minus infinity in the nearest bfloat16."""
    w = np.array([*values, sign * np.finfo(np.float32).max], np.float32)
    for how in ("fp16", "bf16", "bf16 truncated"):
        assert np.isfinite(round_to(w, how)).all()


@pytest.mark.parametrize("how", ["fp16", "bf16", "bf16 truncated", "int8 channel", "int8 tensor"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)])
def test_weights_of_any_shape_can_be_rounded(how: str, shape: tuple[int, ...]) -> None:
    assert round_to(np.zeros(shape, np.float32), how).shape == shape
