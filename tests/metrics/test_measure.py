"""Laws of the error figures: against a naive reference, on special values, on odd dtypes and layouts."""

import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bisect_align.metrics import measure
from bisect_align.metrics.measure import BLOCK
from bisect_align.result.result import Figures

modest = settings(max_examples=80, deadline=None)
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6)


def naive(golden, target):
    """The definitions of the docstring, written as they stand, for finite pairs."""
    g, t = golden.astype(np.float64).ravel(), target.astype(np.float64).ravel()
    d = t - g
    norm_g, norm_t, norm_d = math.sqrt((g * g).sum()), math.sqrt((t * t).sum()), math.sqrt((d * d).sum())
    mse = (d * d).mean()
    rel = np.abs(d) / (np.abs(g) + 1e-8)
    peak = g.max() - g.min()
    return {
        "cosine": g @ t / (norm_g * norm_t) if norm_g and norm_t else float(norm_g == norm_t),
        "max_abs": np.abs(d).max(),
        "mean_abs": np.abs(d).mean(),
        "mse": mse,
        "rmse": math.sqrt(mse),
        "rel_l2": 0.0 if not norm_d else norm_d / norm_g if norm_g else math.inf,
        "rel_rmse": 0.0 if not norm_d else math.sqrt(mse) / np.abs(g).mean() if norm_g else math.inf,
        "psnr": math.inf if not mse else 10 * math.log10(peak**2 / mse) if peak else -math.inf,
        "sqnr": math.inf if not norm_d else 10 * math.log10(norm_g**2 / norm_d**2) if norm_g else -math.inf,
        "max_rel": rel.max(),
        "mean_rel": rel.mean(),
        "mismatched": (d != 0).sum(),
    }


def same(figures: Figures, expected):
    for name, value in expected.items():
        assert getattr(figures, name) == pytest.approx(value, rel=1e-9, abs=1e-12 if name in ("cosine", "psnr", "sqnr") else 0), (
            name
        )


@st.composite
def pairs(draw, elements, dtype=np.float32):
    shape = draw(shapes)
    arrays = hnp.arrays(dtype, shape, elements=elements)
    return draw(arrays), draw(arrays)


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
anything = st.one_of(st.floats(width=32), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0]))


@modest
@given(pairs(finite))
@example((np.float32([3e38, -3e38]), np.float32([-3e38, 3e38])))
@example((np.float32([1e-45, 0]), np.float32([0, 3e-45])))
def test_agrees_with_the_naive_reference(pair):
    golden, target = pair
    figures = measure(golden, target)
    assert figures.elements == golden.size
    assert figures.exact == bool((golden == target).all())
    if golden.size:
        same(figures, naive(golden, target))
    if not figures.exact:
        gap = np.abs(golden.astype("f8") - target.astype("f8"))
        assert gap[figures.worst] == figures.max_abs == abs(figures.worst_golden - figures.worst_target)
        assert np.argmax(gap) == np.ravel_multi_index(figures.worst, golden.shape)


@modest
@given(pairs(anything))
def test_special_values(pair):
    golden, target = pair
    figures = measure(golden, target)
    equal = (golden == target) | (np.isnan(golden) & np.isnan(target))
    both = np.isfinite(golden) & np.isfinite(target)
    assert figures.mismatched == (~equal).sum()
    assert figures.exact == equal.all()
    assert (figures.nan_golden, figures.nan_target) == (np.isnan(golden).sum(), np.isnan(target).sum())
    assert (figures.inf_golden, figures.inf_target) == (np.isinf(golden).sum(), np.isinf(target).sum())
    odd = ~equal & ~both
    if odd.any():
        assert figures.max_abs == math.inf
        assert np.flatnonzero(odd)[0] == np.ravel_multi_index(figures.worst, golden.shape)
    if both.any():
        expected = naive(golden[both], target[both])
        del expected["max_abs"], expected["mismatched"]
        same(figures, expected)


@modest
@given(hnp.arrays(np.float32, shapes, elements=anything))
def test_a_tensor_matches_itself_and_its_other_sign_of_zero(golden):
    for target in (golden, np.where(golden == 0, -golden, golden)):
        figures = measure(golden, target)
        assert figures.exact
        assert (figures.cosine, figures.max_abs, figures.rel_l2, figures.sqnr, figures.psnr) == (1, 0, 0, math.inf, math.inf)
        assert (figures.max_ulp, figures.worst, figures.mismatched) == (0, None, 0)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2, 3)])
def test_zeros_are_an_exact_match(shape):
    figures = measure(np.zeros(shape, "f4"), np.zeros(shape, "f4"))
    assert (figures.cosine, figures.rel_l2, figures.mse, figures.exact) == (1, 0, 0, True)
    assert figures.elements == math.prod(shape)


def test_one_side_zero():
    zero, one = np.zeros(4, "f4"), np.ones(4, "f4")
    wrong = measure(zero, one)
    assert (wrong.cosine, wrong.rel_l2, wrong.rel_rmse, wrong.sqnr, wrong.psnr) == (0, math.inf, math.inf, -math.inf, -math.inf)
    dead = measure(one, zero)
    assert (dead.cosine, dead.rel_l2, dead.rel_rmse, dead.sqnr) == (0, 1, 1, 0)


def test_a_target_of_only_nan_has_no_good_figure():
    figures = measure(np.ones(4, "f4"), np.full(4, np.nan, "f4"))
    assert figures.cosine == 0
    assert figures.psnr == figures.sqnr == -math.inf
    assert {figures.max_abs, figures.mse, figures.rel_l2, figures.max_rel, figures.mean_abs} == {math.inf}


def test_scale_trap_and_tail_trap_are_visible():
    rng = np.random.default_rng(0)
    golden = rng.standard_normal(BLOCK * 2 + 77).astype("f4")
    doubled = measure(golden, golden * 2)
    assert doubled.cosine == pytest.approx(1, abs=1e-12)
    assert doubled.rel_l2 == pytest.approx(1)
    assert doubled.sqnr == pytest.approx(0, abs=1e-9)
    target = golden.copy()
    target[-5] += 10
    tail = measure(golden, target)
    assert tail.cosine > 0.9998
    assert tail.max_abs == pytest.approx(10, rel=1e-6)
    assert (tail.worst, tail.mismatched) == ((golden.size - 5,), 1)


def test_long_tensors_keep_their_digits_across_blocks():
    rng = np.random.default_rng(1)
    golden = (rng.standard_normal(3 * BLOCK + 11) * 10.0 ** rng.uniform(-6, 6, 3 * BLOCK + 11)).astype("f4")
    target = golden * np.float32(1 + 1e-6)
    same(measure(golden, target), naive(golden, target))


def test_nan_in_one_block_leaves_the_others_alone():
    golden = np.ones((3, BLOCK), "f4")
    target = golden * 2
    golden[1, 7] = target[1, 7] = np.nan
    target[2, 9] = np.inf
    figures = measure(golden, target)
    assert (figures.nan_golden, figures.nan_target, figures.inf_target) == (1, 1, 1)
    assert figures.mismatched == golden.size - 1
    assert (figures.worst, figures.max_abs, figures.worst_target) == ((2, 9), math.inf, math.inf)
    assert figures.rel_l2 == figures.mean_abs == 1


@modest
@given(st.lists(finite, min_size=1, max_size=5), st.data())
def test_ulps_count_representable_steps(values, data):
    golden = np.float32(values)
    steps = data.draw(st.integers(0, 4))
    target = golden.copy()
    for _ in range(steps):
        target = np.nextafter(target, np.float32(3e38))
    if np.isfinite(target).all() and (golden < np.float32(2.9e38)).all():
        assert measure(golden, target).max_ulp == steps
    assert measure(golden.astype("f8"), target).max_ulp is None


def test_places_are_right_beside_special_values():
    equal = measure(np.float32([np.nan, np.inf, 1, 2, 3]), np.float32([np.nan, np.inf, 1, 5, 4]))
    assert (equal.worst, equal.max_abs, equal.mismatched) == ((3,), 3, 2)
    odd = measure(np.float32([0, 1, np.inf, np.nan]), np.float32([9, 1, -np.inf, 1]))
    assert (odd.worst, odd.max_abs, odd.mismatched) == ((2,), math.inf, 3)


def test_ulps_across_the_whole_line():
    top = np.finfo(np.float32).max
    assert measure(np.float32([-top]), np.float32([top])).max_ulp == 2 * int(top.view(np.int32))


@pytest.mark.parametrize(
    "kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "int4", "uint4", "float4_e2m1fn"]
)
def test_small_formats_are_read_by_value(kind):
    dtype = np.dtype(getattr(ml_dtypes, kind))
    golden, target = np.array([[0, 1, 2], [3, 4, 6]]).astype(dtype), np.array([[0, 1, 2], [3, 6, 6]]).astype(dtype)
    figures = measure(golden, target)
    same(figures, naive(golden.astype("f8"), target.astype("f8")))
    assert (figures.worst, figures.worst_golden, figures.worst_target) == ((1, 1), 4, 6)
    assert figures.max_ulp is None
    assert measure(golden, golden.astype("f4")).exact


def test_bfloat16_nan_is_seen():
    figures = measure(np.ones(2, ml_dtypes.bfloat16), np.array([1, np.nan], ml_dtypes.bfloat16))
    assert (figures.nan_target, figures.mismatched) == (1, 1)


@modest
@given(
    st.sampled_from(["int64", "uint64", "int32", "uint8", "bool"]),
    st.sampled_from(["int64", "uint64", "int8", "bool"]),
    st.data(),
)
def test_integers_are_exact(kind, other, data):
    golden = data.draw(hnp.arrays(kind, 3))
    target = data.draw(hnp.arrays(other, 3))
    gaps = [abs(int(g) - int(t)) for g, t in zip(golden, target, strict=True)]
    figures = measure(golden, target)
    assert figures.exact == (not any(gaps))
    if {kind, other} <= {"int64", "uint64"} or max(gaps) < 2**53:
        assert figures.mismatched == sum(gap > 0 for gap in gaps)
        assert figures.max_abs == float(max(gaps))


def test_neighbours_beyond_two_to_the_53_differ():
    figures = measure(np.array([0, 2**53], "i8"), np.array([0, 2**53 + 1], "i8"))
    assert (figures.mismatched, figures.max_abs, figures.worst, figures.exact) == (1, 1, (1,), False)
    assert measure(np.int64([2**62]), np.uint64([2**62 + 1])).max_abs == 1
    assert measure(np.int64([-(2**63)]), np.int64([2**63 - 1])).max_abs == 2.0**64


def test_complex_by_magnitude():
    golden, target = np.array([3 + 4j, 1], "c8"), np.array([3 + 0j, 1], "c8")
    figures = measure(golden, target)
    assert (figures.max_abs, figures.mse, figures.worst, figures.worst_golden) == (4, 8, (0,), 5)
    assert figures.cosine == pytest.approx(10 / math.sqrt(26 * 10))
    assert figures.rel_l2 == pytest.approx(4 / math.sqrt(26))
    assert measure(golden, np.array([complex(np.nan, 0), 1], "c8")).nan_target == 1


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e-150, 1e150, 1e200, 8e307])
def test_float64_beyond_the_range_of_squares(size):
    golden, target = np.array([1.0, -0.5, 0.25]) * size, np.array([1.0, 0.5, 0.25]) * size
    figures, unit = measure(golden, target), measure(golden / size, target / size)
    for name in ("cosine", "rel_l2", "rel_rmse", "sqnr", "psnr"):
        assert getattr(figures, name) == pytest.approx(getattr(unit, name), rel=1e-9, abs=1e-9)
    assert figures.rmse == pytest.approx(unit.rmse * size, rel=1e-9)
    assert (figures.mismatched, figures.worst) == (1, (1,))
    with_inf = measure(np.append(golden, np.inf), np.append(target, np.inf))
    assert with_inf.rel_l2 == figures.rel_l2
    assert with_inf.rmse == figures.rmse
    imaginary = measure(golden * 1j, target * 1j)
    assert imaginary.cosine == pytest.approx(figures.cosine)


def test_texts_are_equal_or_not():
    golden, target = np.array([["a", "b"], ["ü", "d"]], object), np.array([[b"a", "b"], ["ü".encode(), "x"]], object)
    figures = measure(golden, target)
    assert figures == Figures(elements=4, mismatched=1, exact=False, worst=(1, 1))
    assert measure(golden, golden.astype("U2")).exact
    assert measure(np.array(["1"]), np.array([1])).mismatched == 1


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shapes differ"):
        measure(np.zeros(3), np.zeros((3, 1)))


@settings(max_examples=12, deadline=None)
@given(st.permutations(range(3)), st.sampled_from([1, 2, -1]), st.sampled_from([(7, 190, 211), (1, 200_000, 2), (300_000, 1, 1)]))
def test_layout_does_not_matter(axes, step, shape):
    rng = np.random.default_rng(3)
    golden, target = rng.standard_normal((2, *shape)).astype("f4")
    golden, target = (array.transpose(axes)[..., ::step] for array in (golden, target))
    strided, packed = measure(golden, target), measure(np.ascontiguousarray(golden), target.copy())
    assert (strided.worst, strided.max_abs, strided.mismatched) == (packed.worst, packed.max_abs, packed.mismatched)
    assert strided.cosine == pytest.approx(packed.cosine, rel=1e-12)
    assert strided.rel_l2 == pytest.approx(packed.rel_l2, rel=1e-12)


def test_memory_is_a_few_blocks_even_for_strided_memory_maps(tmp_path):
    path = tmp_path / "big.npy"
    np.save(path, np.arange(4_000_000, dtype="f4").reshape(2000, 2000))
    golden, target = np.load(path, mmap_mode="r"), np.load(path, mmap_mode="r").T
    tracemalloc.start()
    try:
        figures = measure(golden, target)
        assert tracemalloc.get_traced_memory()[1] < 16 * 8 * BLOCK
    finally:
        tracemalloc.stop()
    assert figures.mismatched == 2000 * 1999
