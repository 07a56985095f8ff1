"""Each pattern is seen where it was planted, on values with noise; noise alone, and an error without a pattern, say nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisect_align.judgement.precision import rms
from bisect_align.judgement.symptoms import MOST, symptoms
from bisect_align.result.result import Symptom

Array = NDArray[Any]
Plant = Callable[[Array, np.random.Generator], Array]
SHAPE = (2, 6, 8, 8)
NOISES = (0.0, 2.0**-20, 2.0**-8)  # relative to each element, as number formats make it


def at(where: Any, change: Callable[[Array], Array | float]) -> Plant:
    def plant(y: Array, rng: np.random.Generator) -> Array:
        t = y.copy()
        t[where] = change(t[where])
        return t

    return plant


def everywhere(change: Callable[[Array], Array]) -> Plant:
    return lambda y, rng: change(y)


def other(x: Array) -> Array:
    """Wrong, with no pattern in it."""
    return np.asarray(np.random.default_rng(5).permutation(np.cos(7 * x.reshape(-1))).reshape(x.shape) * 3, x.dtype)


# name -> (what is planted, the symptom's name, a piece of its text)
PLANTED: dict[str, tuple[Plant, str, str]] = {
    "scale": (everywhere(lambda y: 0.75 * y), "scale", "0.75|0.749"),
    "offset": (everywhere(lambda y: y + 0.5), "offset", "+0.5|+0.49"),
    "sign": (everywhere(lambda y: -y), "sign", "flipped"),
    "absolute": (everywhere(np.abs), "sign", "lost"),
    "swapped channels": (everywhere(lambda y: y[:, [0, 4, 2, 3, 1, 5]]), "permuted channels", "1 and 4 are swapped"),
    "reversed channels": (everywhere(lambda y: y[:, ::-1]), "permuted channels", "reverse"),
    "stale image": (at(np.s_[1], lambda x: x * 0), "zero", "holds zero|hold zero"),
    "transposed": (everywhere(lambda y: y.swapaxes(2, 3)), "transposed axes", "[0, 1, 3, 2] exchanged"),
    "other layout": (everywhere(lambda y: y.transpose(0, 2, 3, 1).reshape(y.shape)), "transposed axes", "[0, 2, 3, 1] in memory"),
    "shift": (everywhere(lambda y: np.roll(y, 1, 3)), "shift by one", "+1 along axis 3"),
    "diagonal shift": (everywhere(lambda y: np.roll(y, (-1, 1), (2, 3))), "shift by one", "-1 along axis 2 and +1 along axis 3"),
    "last row": (at(np.s_[:, :, -1], other), "border only", "the last index of axis 2"),
    "rim": (at(np.s_[:, :, :, 0], other), "border only", "the first index of axis 3"),
    "channel": (at(np.s_[:, 3], other), "one channel", "index 3 of 6 on axis 1"),
    "channel sign": (at(np.s_[:, 3], lambda x: -x), "one channel", "there: the sign is flipped"),
    "channel half": (at(np.s_[:, 2], lambda x: x / 2), "one channel", "there: 0.5|there: 0.49"),
    "image": (at(np.s_[1], other), "one image", "index 1 of 2 on axis 0"),
    "all but one": (at(np.s_[:, 1:], other), "all but one channel", "index 0"),
    "tile": (at(np.s_[:1, 1:3, 2:5, 3:6], other), "one block", "[0:1, 1:3, 2:5, 3:6]"),
    "two elements": (
        at((np.array([0, 1]), np.array([2, 4]), np.array([3, 1]), np.array([5, 7])), lambda x: x + 9),
        "single elements",
        "2 elements",
    ),
    "clamp": (everywhere(lambda y: np.clip(y, -0.5, 1.25)), "clamp", "1.25"),
    "six": (everywhere(lambda y: np.maximum(y, 0)), "clamp", "below 0"),
    "zero tile": (at(np.s_[:, :, 2:4, 2:6], lambda x: 0 * x), "zero", "zero"),
    "sentinel": (at(np.s_[:, :, 2:4, 2:6], lambda x: 0 * x + 77), "constant", "77"),
    "step": (everywhere(lambda y: np.rint(y / 0.25) * 0.25), "coarse rounding", "multiples of 0.25, rounded to nearest"),
    "floor": (everywhere(lambda y: np.floor(y / 0.25) * 0.25), "coarse rounding", "rounded down"),
    "bias": (everywhere(lambda y: y - np.linspace(-2.1, 3, 6).reshape(1, 6, 1, 1)), "bias", "each of the 6 indices of axis 1"),
    "statistics": (
        everywhere(lambda y: y * np.linspace(0.5, 1.7, 6).reshape(1, 6, 1, 1) + np.linspace(2, -1, 6).reshape(1, 6, 1, 1)),
        "scale per channel",
        "each of the 6 indices of axis 1",
    ),
}


def pair(plant: Plant, noise: float, seed: int) -> tuple[Array, Array, float]:
    """target, replay, rms of the noise between them."""
    rng = np.random.default_rng(seed)
    y = (rng.standard_normal(SHAPE) + 0.1).astype(np.float32)
    t = plant(y, rng).astype(np.float32)
    # exact where a step or a bound was planted: a format does not move what lies on its grid
    t = np.where(np.isin(t, (-0.5, 0.0, 1.25, 77.0)) | (t * 4 == np.rint(t * 4)), t, t * (1 + noise * rng.uniform(-1, 1, SHAPE)))
    return t.astype(np.float32), y, noise * rms(y)


def looked(
    target: Array, replay: Array, noise: float = 0.0, op: str = "Conv", boundary: Mapping[str, Array] = {}
) -> tuple[Symptom, ...]:
    return symptoms(target, replay, op, boundary=boundary, noise_rms=noise)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_what_was_planted_is_named(kind: str, noise: float) -> None:
    plant, name, text = PLANTED[kind]
    for seed in range(3):
        found = looked(*pair(plant, noise, seed))
        named = [s for s in found if s.name == name]
        assert named, (kind, seed, found)
        assert any(piece in named[0].text for piece in text.split("|")), named[0].text
        assert named[0].confidence > 0.7
        assert found[0].confidence >= named[0].confidence


# Patterns that are true of another one as well.
ALSO = {
    "absolute": {"dropped activation"},
    "stale image": {"one image", "permuted channels"},
    "zero tile": {"one block", "border only"},
    "sentinel": {"one block"},
    "six": {"dropped activation", "zero"},
    "floor": {"rounding"},
    "shift": {"permuted channels"},
    "channel sign": {"sign"},
}


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_nothing_else_is_named(kind: str) -> None:
    plant, name, _ = PLANTED[kind]
    for seed in range(3):
        names = {s.name for s in looked(*pair(plant, 2.0**-20, seed))}
        assert names <= {name, *ALSO.get(kind, ())}, (kind, names)


@given(
    shape=st.lists(st.integers(1, 9), min_size=0, max_size=4),
    seed=st.integers(0, 1000),
    noise=st.sampled_from([2.0**-20, 2.0**-8, 0.05]),
    claimed=st.floats(0.7, 3),
)
@settings(max_examples=150, deadline=None)
def test_noise_says_nothing(shape: list[int], seed: int, noise: float, claimed: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(shape).astype(np.float32)
    t = (y * (1 + noise * rng.standard_normal(shape))).astype(np.float32)
    if y.size >= 64:  # of a few elements one may hold most of the noise
        assert looked(t, y, noise * rms(y) * claimed) == ()


@given(seed=st.integers(0, 1000), shape=st.sampled_from([(4, 40), (3, 5, 16), (2, 6, 8, 8), (200,)]))
@settings(max_examples=60, deadline=None)
def test_an_error_without_a_pattern_says_nothing(seed: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    y, d = rng.standard_normal(shape), rng.standard_normal(shape)
    assert looked((y + d).astype(np.float32), y.astype(np.float32), 1e-6) == ()


@given(seed=st.integers(0, 1000), kinds=st.sets(st.sampled_from(sorted(PLANTED)), min_size=1, max_size=2))
@settings(max_examples=60, deadline=None)
def test_few_are_named_the_best_first(seed: int, kinds: set[str]) -> None:
    target, replay, noise = pair(PLANTED[min(kinds)][0], 2.0**-20, seed)
    target = PLANTED[max(kinds)][0](target, np.random.default_rng(seed)).astype(np.float32)
    found = looked(target, replay, noise)
    assert len(found) <= MOST
    assert all(0 <= s.confidence <= 1 for s in found)
    assert [round(s.confidence, 2) for s in found] == sorted((round(s.confidence, 2) for s in found), reverse=True)
    assert found == looked(target.copy(), replay.copy(), noise)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_with_its_place(value: float) -> None:
    y = np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32)
    t = y.copy()
    t[:, [1, 4]] = value
    (found,) = looked(t, y)
    assert found.name == ("NaN" if np.isnan(value) else "Inf")
    assert "40 of 120 elements" in found.text
    assert "indices 1, 4 of axis 1" in found.text


def test_infinities_that_belong_there_are_no_symptom() -> None:
    y = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    y[:, 3] = -np.inf
    assert looked(np.where(np.isinf(y), y, 2 * y), y)[0].name == "scale"


def test_overflow_is_told_by_the_size_of_what_was_lost() -> None:
    y = np.array([1.0, 70000.0] * 8, np.float32)
    (found,) = looked(np.where(y > 60000, np.inf, y).astype(np.float32), y)
    assert "beyond the range of float16" in found.text


@pytest.mark.parametrize(
    ("shape", "change", "text"),
    [
        ((2, 3, 4), lambda y: y.reshape(2, 12), "[2, 12] instead of [2, 3, 4]; the values are right"),
        ((2, 3, 4), lambda y: y.transpose(0, 2, 1), "the values are right with axes [0, 2, 1]"),
        ((1, 4, 4), lambda y: np.pad(y, ((0, 0), (1, 0), (0, 1)), constant_values=9), "the right values stand at [0, 1, 0]"),
        ((1, 4, 4), lambda y: y[:, 1:, :3], "it is the part of the right values at [0, 1, 0]"),
        ((1, 4, 4), lambda y: np.zeros((3, 3), np.float32), "[3, 3] instead of [1, 4, 4]"),
    ],
)
def test_a_wrong_shape_says_where_the_right_values_are(
    shape: tuple[int, ...], change: Callable[[Array], Array], text: str
) -> None:
    y = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (found,) = looked(change(y), y)
    assert found.name == "wrong shape"
    assert text in found.text


@pytest.mark.parametrize("noise", NOISES)
def test_an_operator_that_was_left_out(noise: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 40)).astype(np.float32)
    t = (x * (1 + noise * rng.uniform(-1, 1, x.shape))).astype(np.float32)
    found = looked(t, np.tanh(x), noise * rms(np.tanh(x)), "Tanh", {"other": x[:, ::-1], "x": x})
    assert found[0].name == "passed through"
    assert "'x'" in found[0].text


def test_an_activation_fused_away() -> None:
    x = np.random.default_rng(2).standard_normal((3, 40)).astype(np.float32)
    assert looked(x, np.maximum(x, 0), 1e-6)[0].name == "dropped activation"


@pytest.mark.parametrize(("bits", "kind"), [(7, "nearest"), (7, "towards zero"), (3, "nearest")])
def test_bits_of_mantissa_are_counted(bits: int, kind: str) -> None:
    y = np.random.default_rng(3).standard_normal(600).astype(np.float32)
    step = np.exp2(np.floor(np.log2(np.abs(y))) - bits)
    t = ((np.rint if kind == "nearest" else np.trunc)(y / step) * step).astype(np.float32)
    (found,) = looked(t, y, 1e-7)
    assert found.name == "coarse rounding"
    assert f"{bits} bits of mantissa, rounded {'to nearest' if kind == 'nearest' else 'towards zero'}" in found.text


@pytest.mark.parametrize(
    ("way", "text"),
    [(np.floor, "down (floor)"), (np.trunc, "towards zero"), (lambda x: np.floor(x + 0.5), "half up"), (np.ceil, "up (ceil)")],
)
def test_round_another_way(way: Callable[[Array], Array], text: str) -> None:
    x = (np.random.default_rng(4).integers(-60, 60, 300) / 4).astype(np.float32)
    found = looked(way(x), np.rint(x), 0.0, "Round", {"x": x})
    assert any(s.name == "rounding" and text in s.text for s in found), found


@pytest.mark.parametrize(("way", "text"), [(np.floor, "always down"), (np.ceil, "always up"), (np.trunc, "always towards zero")])
def test_levels_off_by_one(way: Callable[[Array], Array], text: str) -> None:
    x = np.random.default_rng(4).normal(0, 30, 300)
    (found,) = looked(way(x).astype(np.int8), np.rint(x).astype(np.int8), 0.0, "QuantizeLinear")
    assert found.name == "rounding"
    assert text in found.text


def test_a_step_that_is_rounded_to_one_side() -> None:
    rng = np.random.default_rng(6)
    y = rng.standard_normal(2000)
    t = np.floor(y / 0.05 + rng.uniform(-0.1, 0.1, y.size)) * 0.05
    found = looked(t.astype(np.float32), y.astype(np.float32), 0.04)
    assert any("of a step of 0.05" in s.text and "below" in s.text for s in found), found


@pytest.mark.parametrize("keepdims", [True, False])
def test_ties_of_an_arg_operator(keepdims: bool) -> None:
    x = np.random.default_rng(7).integers(0, 4, (30, 6)).astype(np.float32)
    first, last = x.argmin(1), 5 - x[:, ::-1].argmin(1)
    target, replay = (v[:, None] if keepdims else v for v in (last, first))
    found = looked(target.astype(np.int64), replay.astype(np.int64), 0.0, "ArgMin", {"x": x})
    assert any(s.name == "ties" for s in found), found


def test_large_tensors_are_sampled_alike() -> None:
    y = np.random.default_rng(8).standard_normal((5, 1000, 1000), np.float32)
    t = y * np.float32(1.5)
    assert [s.name for s in looked(t, y, 1e-6)] == ["scale"]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2,)])
def test_small_and_empty_tensors_say_nothing(shape: tuple[int, ...]) -> None:
    y = np.ones(shape, np.float32)
    assert looked(y, y) == ()
    assert looked(y + np.float32(1), y) == ()


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int32, np.uint8, ml_dtypes.bfloat16])
def test_every_dtype_is_looked_at(kind: Any) -> None:
    x = np.arange(64).reshape(8, 8)
    assert looked((x * 2).astype(kind), x.astype(kind))[0].name == "scale"


def test_booleans_and_complex_numbers_do_no_harm() -> None:
    x = np.arange(64).reshape(8, 8)
    assert all(s.name for s in looked(x % 3 > 1, x % 2 > 0))
    assert looked(x * 2j, x * 1j) == ()


# ---- places and numbers that are alike -------------------------------------------------------------------------------------
def test_a_channel_of_zeros_and_a_few_others_is_a_channel() -> None:
    """A Relu leaves three live elements in it; that all three are wrong says more than that three elements are."""
    y = np.random.default_rng(1).standard_normal((10, 12)).astype(np.float32)
    y[:, 7] = 0
    y[[1, 3, 8], 7] = 0.4, 0.3, 0.9
    t = y.copy()
    t[:, 7] *= -1
    assert [s.name for s in looked(t, y, 1e-6)] == ["one channel"]


def test_two_of_many_elements_are_no_channel() -> None:
    y = np.random.default_rng(1).standard_normal((10, 120)).astype(np.float32)
    t = y.copy()
    t[[2, 5], 7] += 3
    assert looked(t, y, 1e-6)[0].name == "single elements"


def test_opposite_sides_are_a_border() -> None:
    y = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)
    t = y.copy()
    t[..., [0, 7]] = 3 * np.cos(7 * t[..., [0, 7]])
    assert looked(t, y, 1e-6)[0].name == "border only"


@pytest.mark.parametrize(("shape", "noise"), [((1, 32), 1e-6), ((3, 16), 1e-3), ((1, 24, 1, 1), 1e-6)])
def test_channels_of_few_elements_are_followed(shape: tuple[int, ...], noise: float) -> None:
    rng = np.random.default_rng(2)
    y = np.maximum(rng.standard_normal(shape), -0.5).astype(np.float32)
    t = (y[:, ::-1] * (1 + noise * rng.uniform(-1, 1, shape))).astype(np.float32)
    found = looked(t, y, noise * rms(y))
    assert found[0].name == "permuted channels"


def test_a_channel_that_is_a_copy_of_no_other_is_not_permuted() -> None:
    y = np.random.default_rng(3).standard_normal((64, 4)).astype(np.float32)
    y[0] = 0
    t = y.copy()
    t[[5, 9, 11]] = 0
    assert all(s.name != "permuted channels" for s in looked(t, y, 1e-6))


def test_what_fits_much_better_is_named_first() -> None:
    """A picture that is nearly its own mirror image with the other sign."""
    y = np.linspace(-1, 1, 200).astype(np.float32) + 0.05 * np.random.default_rng(4).standard_normal(200).astype(np.float32)
    y = np.stack([y, 2 * y, 3 * y])
    assert looked(np.ascontiguousarray(y[:, ::-1]), y, 1e-7)[0].name == "permuted channels"


# ---- coarse formats --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("held", [np.float16, ml_dtypes.bfloat16])
def test_steps_that_were_stored_in_halves(held: Any) -> None:
    """The levels are multiples of the step only about, and noise decides which of two a value goes to."""
    rng = np.random.default_rng(5)
    y = rng.standard_normal(3000).astype(np.float32)
    noise = 2.0**-11 if held is np.float16 else 2.0**-8
    seen = y * (1 + noise * rng.uniform(-1, 1, y.shape))
    t = (np.rint(seen / 0.37) * 0.37).astype(held).astype(np.float32)
    (found,) = looked(t, y, noise * rms(y))
    assert found.name == "coarse rounding"
    step = float(found.text.split("multiples of ")[1].split(",")[0])
    assert step == pytest.approx(0.37, rel=1e-3)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_clamp_whose_other_side_holds_few(count: int) -> None:
    y = np.random.default_rng(6).uniform(-1, 1, 500).astype(np.float32)
    y[:count] = -2
    t = np.clip(y, -1.2, 0.7)
    found = looked(t, y, 1e-6)
    assert found[0].name == "clamp"
    assert "above 0.7" in found[0].text
    assert f"below -1.2 ({count} elements)" in found[0].text


def test_a_bias_of_channels_with_few_elements() -> None:
    rng = np.random.default_rng(7)
    y = rng.standard_normal((1, 32, 4)).astype(np.float32)
    assert looked(y - 0.3 * rng.standard_normal((32, 1)).astype(np.float32), y, 1e-6)[0].name == "bias"


# ---- regions and norms -----------------------------------------------------------------------------------------------------
def test_operators_at_the_end_of_a_region_that_were_left_out() -> None:
    x = np.random.default_rng(8).standard_normal((3, 40)).astype(np.float32)
    hidden = x @ np.ones((40, 40), np.float32)
    found = symptoms(hidden, np.tanh(hidden), "Tanh", boundary={"x": x}, noise_rms=1e-6, inner={"h": hidden})
    assert found[0].name == "passed through"
    assert "'h', from which it is computed" in found[0].text


@pytest.mark.parametrize("lost", [True, False])
def test_a_variance_that_cancelled(lost: bool) -> None:
    rng = np.random.default_rng(9)
    x = rng.standard_normal((1, 20, 24)).astype(np.float32)
    x[0, [3, 7, 11]] = 400 + 0.05 * x[0, [3, 7, 11]]
    y = ((x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)).astype(np.float32)
    t = y.copy()
    t[0, [3, 7, 11]] = np.nan if lost else 1.4 * t[0, [3, 7, 11]]
    found = symptoms(t, y, "LayerNormalization", boundary={"x": x}, noise_rms=1e-6)
    assert found[0].name == ("NaN" if lost else "cancellation")
    (told,) = (s for s in found if s.name == "cancellation")
    assert "3 of 20 rows are wrong" in told.text
    t[0, 5] = 0  # one that cancellation does not explain
    assert all(s.name != "cancellation" for s in symptoms(t, y, "LayerNormalization", boundary={"x": x}, noise_rms=1e-6))
