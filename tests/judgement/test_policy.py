"""GOOD or BAD: every threshold in its own direction, what noise explains, and what no policy forgives."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_align.errors import UsageError
from bisect_align.judgement.policy import AT_LEAST, AT_MOST, CLASSIC, NOISE_FACTOR, SQNR_LIMIT, Policy, beyond, state_of
from bisect_align.judgement.precision import PRECISIONS
from bisect_align.judgement.shadow import NoiseLevel
from bisect_align.metrics.measure import measure
from bisect_align.result.result import Figures, State

X = np.random.default_rng(5).standard_normal((8, 24)).astype(np.float32)
NOISE = NoiseLevel(relative=1e-3, peak=5e-3, level=1.0)
CALIBRATED = Policy()


def state(figures: Figures, policy: Policy = CALIBRATED, noise: NoiseLevel | None = NOISE, *, discrete: bool = False) -> State:
    found, reason = state_of(figures, noise, policy, "fp16", discrete=discrete)
    assert reason
    return found


# ---- thresholds ------------------------------------------------------------------------------------------------------------
def test_every_threshold_is_a_figure_and_has_one_direction() -> None:
    assert not AT_LEAST & AT_MOST
    assert {f.name for f in fields(Figures)} >= AT_LEAST | AT_MOST


@pytest.mark.parametrize("metric", sorted(AT_LEAST | AT_MOST))
def test_each_threshold_in_both_directions(metric: str) -> None:
    low, high = Figures(**{metric: 1.0}), Figures(**{metric: 3.0})  # type: ignore[arg-type]
    limit = {metric: 2.0}
    good, bad = (high, low) if metric in AT_LEAST else (low, high)
    assert beyond(good, limit) == ""
    assert metric in beyond(bad, limit)
    assert beyond(Figures(**{metric: 2.0}), limit) == ""  # type: ignore[arg-type]
    classic = Policy("classic", limit)
    assert state(good, classic) is State.GOOD
    assert state(bad, classic) is State.BAD


@pytest.mark.parametrize("metric", sorted(AT_LEAST | AT_MOST))
def test_nan_misses_every_threshold_and_what_is_not_defined_misses_none(metric: str) -> None:
    assert metric in beyond(Figures(**{metric: float("nan")}), {metric: 0.0})  # type: ignore[arg-type]
    undefined = Figures() if metric == "mismatched" else Figures(**{metric: None})  # type: ignore[arg-type]
    assert beyond(undefined, {metric: 0.0}) == ""


@pytest.mark.parametrize("metric", sorted(AT_LEAST | AT_MOST))
def test_equal_tensors_keep_every_threshold(metric: str) -> None:
    limit = {"cosine": 1.0}.get(metric, 60.0 if metric in AT_LEAST else 0.0)
    assert beyond(measure(X, X), {metric: limit}) == ""


def test_all_thresholds_must_hold() -> None:
    figures = Figures(cosine=0.999, max_abs=0.1)
    assert beyond(figures, {"cosine": 0.99, "max_abs": 0.2}) == ""
    assert "max_abs" in beyond(figures, {"cosine": 0.99, "max_abs": 0.05})
    assert "cosine" in beyond(figures, {"cosine": 0.9999, "max_abs": 0.05})


@pytest.mark.parametrize("name", ["", "strict", "classic:tight", "Calibrated"])
def test_an_unknown_policy_is_one_line_that_names_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError, match="calibrated"):
        Policy(name)


def test_an_unknown_metric_is_one_line_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="cosine"):
        Policy("classic", {"cosinus": 0.9})


# ---- classic ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_classic_without_numbers_uses_the_limits_of_the_precision(precision: str) -> None:
    limit = SQNR_LIMIT[precision]
    for sqnr, expected in ((limit + 1, State.GOOD), (limit - 1, State.BAD)):
        assert state_of(Figures(cosine=1.0, sqnr=sqnr), None, Policy("classic"), precision, discrete=False)[0] is expected


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_policies_catch_a_scaled_output_and_a_wild_one(name: str) -> None:
    """The cosine trap: a scaled tensor has cosine 1."""
    assert state(measure(X, X), Policy(name)) is State.GOOD
    assert state(measure(X, 3 * X), Policy(name)) is State.BAD
    assert state(measure(X, X[::-1]), Policy(name)) is State.BAD


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"cosine": 0.9995, "psnr": 10.0}, State.GOOD),  # cosine is high: nothing further is asked
        ({"cosine": 0.995, "psnr": 45.0, "max_abs": 9.0}, State.GOOD),
        ({"cosine": 0.995, "psnr": 25.0, "max_abs": 1e-9}, State.BAD),
        ({"cosine": 0.995, "psnr": 35.0, "max_abs": 5e-3}, State.GOOD),
        ({"cosine": 0.995, "psnr": 35.0, "max_abs": 5e-2}, State.BAD),
        ({"cosine": 0.98, "psnr": 60.0, "max_abs": 0.0}, State.BAD),
        ({"cosine": 0.9999, "psnr": 60.0, "sqnr": 19.0}, State.BAD),  # scaled: cosine cannot see that
    ],
    ids=str,
)
def test_the_funnel_asks_cosine_then_psnr_then_the_largest_error(figures: dict[str, float], expected: State) -> None:
    found, reason = state_of(Figures(**{"sqnr": 50.0, **figures}), None, Policy("classic"), "bf16", discrete=False)  # type: ignore[arg-type]
    assert found is expected, reason
    assert reason


def test_the_loose_preset_measures_psnr_against_a_peak_of_one() -> None:
    loose = Policy("classic:loose")
    figures = {"sqnr": 1.0, "psnr": 1.0, "max_abs": 1.0}
    for cosine, mse, expected in (
        (0.995, 9e-4, State.GOOD),
        (0.97, 9e-5, State.GOOD),
        (0.97, 5e-4, State.BAD),
        (0.94, 1e-9, State.BAD),
        (0.9999, 1e-2, State.BAD),
    ):
        assert state(Figures(cosine=cosine, mse=mse, **figures), loose) is expected, (cosine, mse)


def test_int8_may_be_off_by_one_level_of_the_goldens_range() -> None:
    for levels, expected in ((0.9, State.GOOD), (1.1, State.BAD)):
        rmse = 0.02  # of a range of 2: PSNR 40 and a little below
        figures = Figures(cosine=0.995, sqnr=20.0, psnr=39.9, rmse=rmse, max_abs=levels * rmse * 10 ** (39.9 / 20) / 255)
        assert state_of(figures, None, Policy("classic"), "int8", discrete=False)[0] is expected


@given(
    st.sampled_from(CLASSIC),
    st.sampled_from(list(PRECISIONS)),
    st.floats(0.9, 1),
    st.floats(0, 1e-2),
    st.floats(0, 80),
    st.floats(0, 80),
)
def test_a_tensor_that_is_closer_in_every_figure_is_never_worse(
    name: str, precision: str, cosine: float, mse: float, psnr: float, sqnr: float
) -> None:
    far = Figures(cosine=cosine, mse=mse, psnr=psnr, sqnr=sqnr, max_abs=0.1)
    near = Figures(cosine=(cosine + 1) / 2, mse=mse / 4, psnr=psnr + 6, sqnr=sqnr + 6, max_abs=0.05)
    states = [state_of(f, None, Policy(name), precision, discrete=False)[0] for f in (far, near)]
    assert states != [State.GOOD, State.BAD]


def test_the_users_numbers_replace_the_preset() -> None:
    figures = measure(X, 1.1 * X)
    assert state(figures, Policy("classic")) is State.BAD
    assert state(figures, Policy("classic", {"cosine": 0.99})) is State.GOOD


# ---- calibrated ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("factor", "expected"), [(0.5, State.GOOD), (0.98, State.GOOD), (1.05, State.BAD), (30, State.BAD)])
def test_what_noise_explains_is_good(factor: float, expected: State) -> None:
    error = np.where(np.arange(X.size).reshape(X.shape) % 2, 1, -1) * np.sqrt(np.mean(X**2))
    target = (X + factor * NOISE_FACTOR * NOISE.relative * error).astype(np.float32)
    assert state(measure(X, target)) is expected


def test_one_wild_element_is_bad_where_the_norm_is_fine() -> None:
    """The tail trap: cosine 0.9999 and more, one element far off."""
    big = np.tile(X, (100, 100))
    wild = big.copy()
    wild[3, 5] += 1
    figures = measure(big, wild)
    assert figures.rel_l2 is not None
    assert figures.rel_l2 < NOISE_FACTOR * NOISE.relative
    assert state(figures) is State.BAD


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("policy", [CALIBRATED, Policy("classic"), Policy("classic", {"cosine": 0.5})], ids=["cal", "cla", "own"])
def test_new_special_values_are_bad_under_every_policy(special: float, policy: Policy) -> None:
    target = X.copy()
    target[1, 1] = special
    assert state(measure(X, target), policy) is State.BAD
    assert state(measure(target, X), policy) is State.BAD
    assert state(measure(target, target), policy) is State.GOOD
    moved = X.copy()
    moved[2, 2] = special
    assert state(measure(target, moved), policy) is State.BAD


def test_equal_values_are_good_even_where_there_is_no_noise() -> None:
    assert state(measure(X, X), noise=None) is State.GOOD
    assert state(measure(X, X + 1), noise=None) is State.BAD


def test_an_error_too_small_to_matter_is_good_in_any_format() -> None:
    quiet = NoiseLevel(relative=1e-9, peak=1e-9, level=1.0)
    assert state(measure(X, X + np.float32(1e-4)), noise=quiet) is State.GOOD
    assert state(measure(X, X + np.float32(3e-2)), noise=quiet) is State.BAD


def test_integers_may_differ_in_the_share_that_near_ties_explain() -> None:
    a, b = np.zeros(100, np.int64), np.zeros(100, np.int64)
    b[:4] = 1
    figures = measure(a, b)
    assert state(figures, noise=NoiseLevel(share=0.01), discrete=True) is State.GOOD
    assert state(figures, noise=NoiseLevel(share=0.009), discrete=True) is State.BAD
    assert state(figures, noise=None, discrete=True) is State.BAD
    assert state(figures, Policy("classic"), discrete=True) is State.BAD
    assert state(measure(a, a), Policy("classic"), discrete=True) is State.GOOD
