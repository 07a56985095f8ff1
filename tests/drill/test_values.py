"""Looking closer: the survey against a plain count, planes and steps through a tensor of any shape, pictures that always fit."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from bisect_align.drill import values as values_module
from bisect_align.drill.navigation import Side
from bisect_align.drill.pictures import along, along_title, chosen, curve, elements, heat, histogram, numbers, short, spot_of
from bisect_align.drill.planes import moved, plane, pooled, stepped, turns
from bisect_align.drill.values import survey
from bisect_align.result.result import State

Array = NDArray[Any]
SOME = st.sampled_from([0.0, 1.0, -2.5, 1e-7, 3e4, math.nan, math.inf, -math.inf])
shapes = arrays.array_shapes(min_dims=0, max_dims=4, max_side=5)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    shape = draw(shapes)
    first = draw(arrays.arrays(np.float32, shape, elements=SOME.map(np.float32)))
    second = draw(arrays.arrays(np.float32, shape, elements=SOME.map(np.float32)))
    return first, np.where(draw(arrays.arrays(np.bool_, shape)), first, second)


@settings(max_examples=200)
@given(pairs(), st.sampled_from([1, 3, 1 << 18]), st.integers(1, 6))
def test_a_survey_counts_as_one_would_by_hand(pair: tuple[Array, Array], block: int, count: int) -> None:
    golden, target = pair
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values_module, "BLOCK", block)
        found = survey(golden, target, count)
    errors = {}
    for index in np.ndindex(golden.shape):
        g, t = float(golden[index]), float(target[index])
        if not (g == t or (math.isnan(g) and math.isnan(t))):
            gap = abs(t - g)
            errors[index] = gap if math.isfinite(gap) else math.inf
    assert found.equal == golden.size - len(errors)
    assert found.equal + found.odd + sum(found.decades.values()) == golden.size
    order = sorted(errors, key=lambda index: (-errors[index], index))
    assert [e.index for e in found.worst] == order[:count]
    assert [e.error for e in found.worst] == pytest.approx([errors[i] for i in order[:count]])
    finite = [e for e in errors.values() if e < math.inf]
    for axis, rms in enumerate(found.along):
        assert rms.shape == (golden.shape[axis],)
        assert bool(rms.any()) == bool(finite)
    assert (found.telling_axis is None) or finite


def test_the_telling_axis_is_the_one_with_the_pattern() -> None:
    golden = np.zeros((2, 5, 7), np.float32)
    target = golden.copy()
    target[:, 3, :] = 1
    found = survey(golden, target)
    assert found.telling_axis == 1
    assert np.flatnonzero(found.along[1]).tolist() == [3]
    assert survey(golden, golden).telling_axis is None


@pytest.mark.parametrize(
    ("golden", "target", "said"),
    [
        (np.ones((3, 4)), np.full((3, 4), 1.1), "spread evenly over all axes"),
        (np.ones((3, 4)), np.ones((3, 4)), "equal"),
        (np.ones(()), np.full((), 1.1), "a scalar: all in one value"),
        (np.ones(()), np.ones(()), "equal"),
        (np.ones((3, 4)), np.full((3, 4), np.nan), "only NaN or Inf"),
    ],
)
def test_an_error_without_a_pattern_is_called_that(golden: Array, target: Array, said: str) -> None:
    found = survey(golden, target)
    assert found.telling_axis is None
    assert along(found, None, 8, 60).plain == said
    assert "None" not in along_title(found.telling_axis)
    assert all(element.index == () for element in found.worst if not golden.ndim)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.uint8, ml_dtypes.bfloat16, np.float16])
def test_every_numeric_type_can_be_looked_at(dtype: Any) -> None:
    golden = np.array([[0, 1], [1, 0]]).astype(dtype)
    found = survey(golden, golden[::-1])
    assert [e.error for e in found.worst] == [1.0] * 4


def test_what_is_no_pair_of_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        survey(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="no numbers"):
        survey(np.array(["a"], object), np.array(["b"], object))


@given(shapes, st.data())
def test_planes_go_through_their_element(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    element = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    seen = set()
    for turn in range(turns(shape)):
        cut = plane(shape, element, turn)
        seen.add((cut.rows, cut.columns))
        assert cut.of(array).ndim == 2
        assert cut.of(array)[cut.spot] == array[element]
        rows, columns = data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9))
        assert plane(shape, moved(shape, cut, rows, columns), turn).title == cut.title
    assert len(seen) == turns(shape)


@given(shapes, st.data())
def test_stepping_visits_every_slice_once(shape: tuple[int, ...], data: st.DataObject) -> None:
    element = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    turn = data.draw(st.integers(0, 5))
    cut = plane(shape, element, turn)
    count = math.prod(size for axis, size in enumerate(shape) if axis not in (cut.rows, cut.columns))
    titles, here = [], cut
    for _ in range(count):
        titles.append(here.title)
        here = plane(shape, stepped(shape, here, 1), turn)
    assert len(set(titles)) == count
    assert here.element == element
    assert stepped(shape, plane(shape, stepped(shape, here, -1), turn), 1) == element


@given(pairs(), st.integers(20, 90), st.integers(3, 20), st.sampled_from(Side), st.integers(0, 3))
def test_pictures_fit_where_they_are_put(pair: tuple[Array, Array], width: int, height: int, side: Side, turn: int) -> None:
    golden, target = pair
    found = survey(golden, target)
    cut = spot_of(found, golden.shape, None, turn)
    shown, off = chosen(golden, target, side, cut), chosen(golden, target, Side.ERROR, cut)
    for picture in (
        heat(shown, cut.spot, side, height, width),
        numbers(shown, cut, off, height, width),
        along(found, found.telling_axis, height, width),
        histogram(found, height, width),
        elements(found, cut.element, height),
    ):
        lines = picture.plain.split("\n")
        assert len(lines) <= height
        assert max(map(len, lines)) <= max(width, 42)
    assert ("*" in numbers(shown, cut, off, 99, 99).plain) == bool(np.any(off != 0))


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 30)), elements=st.floats(-9, 9)))
def test_a_smaller_plane_hides_no_error(values: Array) -> None:
    cells = pooled(values, 7, 9)
    assert cells.shape[0] <= 7
    assert cells.shape[1] <= 9
    assert cells.max() == np.abs(values).max()


@given(
    st.lists(st.tuples(st.none() | st.floats(0, 1e9) | st.just(math.inf), st.sampled_from(State)), max_size=300),
    st.integers(10, 90),
)
def test_the_curve_fits_and_shows_the_worst(points: list[tuple[float | None, State]], width: int) -> None:
    line = curve(points, 0 if points else None, width).plain
    assert len(line) <= width
    if any(error == math.inf for error, _ in points):
        assert "█" in line
    if points and all(error == 0 for error, _ in points):
        assert set(line) == {"▁"}


def test_names_are_shortened_where_they_tell_least() -> None:
    assert short("/bn1/BatchNormalization_output_0", 24) == "/bn1/BatchNormalization…"
    assert short("/bn1/BatchNormalization_output_0", 40) == "/bn1/BatchNormalization_output_0"
    long = short("/model/layers.12/self_attn/q_proj/MatMul_output_0", 24)
    assert len(long) == 24
    assert long.startswith("/model/l")
    assert long.endswith("/MatMul…")
    assert short("a\x1b[2Jb", 30) == "a\\x1b[2Jb"
