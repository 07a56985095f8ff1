"""One region on the target's own values: healthy targets of every precision pass, planted faults are convicted, and what no score
can say (shape, NaN, a lost signal) is said in kind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import (
    Fault,
    Values,
    bench_of,
    border,
    channel,
    convolutional,
    mixed,
    model_of,
    node,
    normal,
    offset,
    one_element,
    run_target,
    scaled,
    store,
)

from bisect_align.judgement.judge import CONVICT, SUSPECT, Judge, Judged
from bisect_align.judgement.precision import PRECISIONS
from bisect_align.judgement.trial import Score
from bisect_align.result.result import Kind

Array = NDArray[np.float32]
RUNS = ["fp32", "fp16", "bf16", "int8"]
NETS = {"mixed": (mixed(3), {"x": normal(7, 8, 24)}), "convolutional": (convolutional(), {"x": normal(8, 1, 3, 10, 8)})}
FAULTS: dict[str, Fault] = {
    "scale": scaled(1.5),
    "offset": offset(0.5),
    "one channel": channel(1, -1.0),
    "one element": one_element(6.0),
    "border": border(-0.5),
}


def judge_of(model: onnx.ModelProto, inputs: Mapping[str, Array], target: Mapping[str, Array], precision: str) -> Judge:
    bench = bench_of(model, inputs)
    tensors = tuple(t for t in bench.graph.tensors if t in target)
    return Judge(bench, Values(target), tensors, PRECISIONS[precision])


def judged(
    nodes: list[onnx.NodeProto], x: Array, target: Mapping[str, Array], precision: str, weights: Mapping[str, Array] = {}
) -> Judged:
    """The last tensor of a small model, its other tensors hidden unless the target holds them."""
    model = model_of(nodes, {"x": x.shape}, weights=weights)
    return judge_of(model, {"x": x}, {"x": x, **target}, precision).judge(nodes[-1].output[0])


def score_of(
    nodes: list[onnx.NodeProto], x: Array, target: Mapping[str, Array], precision: str, weights: Mapping[str, Array] = {}
) -> Score:
    return judged(nodes, x, target, precision, weights).score


# ---- healthy and faulty ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("net", sorted(NETS))
@pytest.mark.parametrize("seed", range(2))
def test_a_healthy_target_is_never_convicted(net: str, precision: str, seed: int) -> None:
    model, inputs = NETS[net]
    x = {name: value + np.float32(0.3) * normal(seed, *value.shape) for name, value in inputs.items()}
    target = run_target(model, x, precision, seed=seed)
    judge = judge_of(model, x, target, precision)
    assert not [t for t in judge.tensors if judge.judge(t).convicted]


@pytest.mark.parametrize("precision", RUNS)
def test_a_healthy_target_with_half_of_its_tensors_is_never_convicted(precision: str) -> None:
    model, inputs = NETS["mixed"]
    target = run_target(model, inputs, precision)
    kept = {name: value for name, value in target.items() if name[0] in "xbg"}
    judge = judge_of(model, inputs, kept, precision)
    assert not [t for t in judge.tensors if judge.judge(t).convicted]


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize(("net", "tensor"), [("mixed", "b1"), ("mixed", "g0"), ("convolutional", "n0")])
def test_a_planted_fault_is_convicted_where_it_is_and_nowhere_else(net: str, tensor: str, fault: str, precision: str) -> None:
    model, inputs = NETS[net]
    target = run_target(model, inputs, precision, {tensor: FAULTS[fault]})
    judge = judge_of(model, inputs, target, precision)
    assert [t for t in judge.tensors if judge.judge(t).convicted] == [tensor]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("fault", [scaled(1.02), offset(0.1), one_element(1.0)], ids=["scale", "offset", "element"])
def test_small_faults_are_convicted_in_fine_formats(fault: Fault, precision: str) -> None:
    model, inputs = NETS["mixed"]
    target = run_target(model, inputs, precision, {"m1": fault})
    judge = judge_of(model, inputs, target, precision)
    assert judge.judge("m1").convicted


def test_equal_bits_score_zero_whatever_came_before() -> None:
    model, inputs = NETS["mixed"]
    target = run_target(model, inputs, "exact", {"b0": scaled(1.5)})
    judge = judge_of(model, inputs, target, "fp32")
    assert judge.judge("b0").convicted
    assert {judge.raw(t).value for t in judge.tensors if t != "b0"} == {0.0}


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_a_tensor_that_should_be_all_zero_and_is_not_is_convicted(precision: str) -> None:
    """A dropped ReLU on negative values: nothing scales, yet the difference is plain."""
    x = -1 - np.abs(normal(1, 8, 24))
    assert judged([node("Relu", "x", "y")], x, {"y": x}, precision).convicted


def test_the_same_question_has_the_same_answer_in_any_order() -> None:
    model, inputs = NETS["mixed"]
    target = run_target(model, inputs, "bf16", {"b1": scaled(1.02)})
    forth, back = (judge_of(model, inputs, target, "bf16") for _ in range(2))
    asked = [forth.judge(t) for t in forth.tensors]
    assert asked == [back.judge(t) for t in reversed(back.tensors)][::-1]


# ---- hard evidence ---------------------------------------------------------------------------------------------------------
X = normal(3, 6, 16)


def test_a_wrong_shape_is_a_fault() -> None:
    got = judged([node("Abs", "x", "y")], X, {"y": np.abs(X)[:, :15]}, "int8")
    assert got.convicted
    assert got.score.kind is Kind.WRONG_SHAPE
    assert "(6, 15)" in got.score.note
    assert "(6, 16)" in got.score.note


def test_a_shape_that_depends_on_values_proves_nothing() -> None:
    nodes = [node("NonZero", "x", "y")]
    assert score_of(nodes, np.eye(4, dtype=np.float32), {"y": np.zeros((2, 3), np.int64)}, "fp32").unknown


@pytest.mark.parametrize("precision", list(PRECISIONS))
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_non_finite_where_the_replay_is_finite_is_a_fault(special: float, precision: str) -> None:
    y = np.tanh(X)
    y[2, 3] = special
    got = judged([node("Tanh", "x", "y")], X, {"y": y}, precision)
    assert got.convicted
    assert got.score.kind is Kind.NON_FINITE


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_finite_where_the_replay_is_not_is_unknown(precision: str) -> None:
    """The target may have a wider format, or saturate: no fault of the operator can be read from it."""
    x = np.full((4, 8), -2, np.float32)
    assert score_of([node("Log", "x", "y")], x, {"y": np.zeros((4, 8), np.float32)}, precision).unknown


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_equal_non_finite_values_are_healthy_and_hide_nothing_beside_them(precision: str) -> None:
    x = np.abs(normal(5, 8, 16)) + 1
    x[0, :3] = 0, 0, -1
    with np.errstate(all="ignore"):
        y = np.log(x)
    nodes = [node("Log", "x", "y")]
    assert not judged(nodes, x, {"y": y}, precision).convicted
    assert judged(nodes, x, {"y": np.where(np.isfinite(y), y + 1, y).astype(np.float32)}, precision).convicted


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_an_empty_tensor_is_equal(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    assert score_of([node("Abs", "x", "y")], x, {"y": x}, "fp32").value == 0


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_scalars_can_be_judged(precision: str) -> None:
    nodes = [node("ReduceSum", "x", "y", keepdims=0)]
    right = np.asarray(X.sum(), np.float32)
    assert not judged(nodes, X, {"y": right}, precision).convicted
    assert judged(nodes, X, {"y": np.asarray(-3 * right - 9, np.float32)}, precision).convicted or precision == "int8"


def test_a_region_that_cannot_be_replayed_is_unknown() -> None:
    model = model_of([node("Abs", "x", "a"), node("Reshape", "a s", "y")], {"x": X.shape}, weights={"s": np.array([6, 16])})
    judge = judge_of(model, {"x": X}, {"x": X, "a": X[:, :5], "y": X}, "fp32")
    assert judge.raw("y").unknown
    assert judge.raw("y").note


# ---- replays that leave the range of float32 ------------------------------------------------------------------------------
LOWEST = float(np.finfo(np.float32).min)
ATTENTION = [
    node("Mul", "m lowest", "k"),
    node("Add", "x k", "s"),
    node("Softmax", "s", "p", axis=-1),
    node("MatMul", "p v", "y"),
]
KEYS = {"x": normal(16, 6, 16, scale=4), "m": np.zeros((6, 16), np.float32)}
ATTENDING = model_of(
    ATTENTION, {n: v.shape for n, v in KEYS.items()}, weights={"lowest": np.float32(LOWEST), "v": normal(17, 16, 16)}
)


def cut_off(y: Array) -> Array:
    """As tensor cores read it in tf32."""
    return np.asarray((y.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32))


def attended(precision: str, faults: Mapping[str, Fault] = {}) -> Judged:
    rng = np.random.default_rng(0)
    keep: Fault = cut_off if precision == "tf32" else lambda y: store(y, precision, rng)
    target = run_target(ATTENDING, KEYS, "exact", {**dict.fromkeys(("k", "s", "p", "y"), keep), **faults})
    return judge_of(ATTENDING, KEYS, {n: target[n] for n in "xmy"}, precision).judge("y")


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_a_mask_of_the_lowest_number_takes_no_noise_away(precision: str) -> None:
    """Rounded up it were minus infinity, and 0 times that NaN: in a replay, not in the target."""
    got = attended(precision)
    assert not got.convicted
    assert got.value != 0


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_a_mask_of_the_lowest_number_hides_no_fault(precision: str) -> None:
    assert attended(precision, {"s": scaled(20)}).convicted


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_way_of_rounding_weights_that_overflows_acquits_nobody() -> None:
    """The factor is rounded up in bfloat16, and the product with it leaves float32."""
    x = np.float32(1.0045) - 2e-4 * np.abs(np.sin(X))
    model = model_of([node("Mul", "x big", "y")], {"x": X.shape}, weights={"big": np.float32(3.384e38)})
    target = run_target(model, {"x": x}, faults={"y": scaled(0.5)})
    got = judge_of(model, {"x": x}, target, "bf16").judge("y")
    assert got.score.statistic != "gate"
    assert got.score.introduced == pytest.approx(0.5)
    assert got.hides > 0.5  # so near the end of float32 nothing is proven, and it says so


def test_where_perturbed_replays_overflow_all_of_the_value_is_noise() -> None:
    x = 1 - 0.01 * np.abs(np.sin(X))
    weights = {"big": np.float32(3.39e38), "small": np.float32(1e-38)}
    model = model_of([node("Mul", "x big", "h"), node("Mul", "h small", "y")], {"x": X.shape}, weights=weights)
    target = run_target(model, {"x": x}, faults={"y": scaled(1.04)})
    got = judge_of(model, {"x": x}, {n: target[n] for n in "xy"}, "bf16").judge("y")
    assert got.score.expected > 0.3
    assert not got.convicted


# ---- the signal and its bulk -----------------------------------------------------------------------------------------------
MASK = np.triu(np.full((16, 16), -10000, np.float32), 1)
SCORES = normal(11, 4, 16, 16)
MASKED = [node("Add", "x mask", "y")]


def test_a_mask_of_minus_ten_thousand_does_not_decide_what_is_small() -> None:
    """Relative L2 over all elements is below 1e-4 in both; beside the scores one of them is 30 %."""
    right = SCORES + MASK
    for error, material in ((0.3, True), (5e-5, False)):
        y = right + np.float32(error) * normal(12, 4, 16, 16) * (MASK == 0)
        assert np.linalg.norm(y - right) < 1e-4 * np.linalg.norm(right)
        assert judged(MASKED, SCORES, {"y": y.astype(np.float32)}, "fp32", {"mask": MASK}).convicted is material


def test_a_mask_that_owns_the_int8_scale_is_precision_loss() -> None:
    """Scores and mask share one scale of 10000 / 255: the scores are gone before the Softmax reads them."""
    masked = SCORES + MASK
    step = np.float32((masked.max() - masked.min()) / 255)
    stored = np.rint(masked / step) * step
    e = np.exp(stored - stored.max(axis=-1, keepdims=True))
    y = np.asarray(e / e.sum(axis=-1, keepdims=True), np.float32)
    got = judged([*MASKED[:1], node("Softmax", "y", "p")], SCORES, {"p": y}, "int8", {"mask": MASK})
    assert got.convicted
    assert got.score.kind is Kind.PRECISION_LOSS
    assert got.score.introduced > 0.2


@pytest.mark.parametrize("above", ["right", "boundary", "inner"])
def test_a_range_that_a_fault_above_has_left_is_no_loss_of_the_format(above: str) -> None:
    """int8: the sum with 3000 has steps of 12, whatever came in; only where it is the golden's own range is the format to blame."""
    nodes = [node("Sub", "x z", "h"), node("Add", "h big", "g"), node("Sub", "g big", "y")]
    big = np.float32(3000)
    model = model_of(nodes, {"x": X.shape, "z": X.shape}, weights={"big": np.array(big)})
    inputs = {"x": X, "z": X + normal(4, *X.shape, scale=0.1)}
    fed = {"right": inputs, "boundary": {n: 2 * v for n, v in inputs.items()}, "inner": {**inputs, "z": inputs["z"][::-1]}}[above]
    step = (big + 1) / np.float32(255)
    y = np.asarray(np.rint((fed["x"] - fed["z"] + big) / step) * step - big, np.float32)
    got = Judge(bench_of(model, inputs), Values({**fed, "y": y}), ("y",), PRECISIONS["int8"]).judge("y")
    assert (got.score.kind is Kind.PRECISION_LOSS) == (above == "right")
    assert got.convicted == (above == "right")


def test_cancellation_in_half_precision_is_precision_loss() -> None:
    nodes = [node("Add", "x big", "h"), node("Sub", "h big", "y")]
    weights = {"big": np.array(3000, np.float32)}
    inside = (X + np.float32(3000)).astype(np.float16).astype(np.float32)
    got = judged(nodes, X, {"y": inside - np.float32(3000)}, "fp16", weights)
    assert got.score.kind is Kind.PRECISION_LOSS
    fine = judged(nodes, X, {"y": (X + np.float32(3000)) - np.float32(3000)}, "fp32", weights)
    assert not fine.convicted


def test_a_difference_that_nobody_would_miss_is_no_fault() -> None:
    """An approximation in an fp32 run: far beyond rounding, far below mattering."""
    y = np.tanh(X)
    got = judged([node("Tanh", "x", "y")], X, {"y": (y + 1e-4 * np.sin(9 * X)).astype(np.float32)}, "fp32")
    assert not got.convicted
    assert got.score.note == "immaterial"


@pytest.mark.parametrize(
    ("op", "floor"), [("Add", 2e-5), ("MatMul", 2e-5), ("Conv", 2e-5), ("Tanh", 2e-4), ("Sigmoid", 2e-4), ("Exp", 2e-4)]
)
def test_sums_and_products_have_no_approximation_that_nobody_would_miss(op: str, floor: float) -> None:
    x, weights = {"Add": (X, normal(1, 16)), "MatMul": (X, normal(1, 16, 16)), "Conv": (X[None], normal(1, 4, 6, 3))}.get(
        op, (X, None)
    )
    model = model_of(
        [node(op, "x" if weights is None else "x w", "y")], {"x": x.shape}, weights={} if weights is None else {"w": weights}
    )

    def off(share: float) -> Judged:
        error: Fault = lambda y: y + share * np.sqrt(np.square(y).mean()) * np.sign(normal(2, *y.shape))  # noqa: E731
        return judge_of(model, {"x": x}, run_target(model, {"x": x}, faults={"y": error}), "fp32").judge("y")

    assert off(1.5e-4).convicted == (floor < 1.5e-4)
    assert off(1.5e-4).score.note == ("" if off(1.5e-4).convicted else "immaterial")
    assert not off(0.75 * floor).convicted
    assert off(1.5e-4).hides >= floor


def test_saturation_in_int8_is_suspect_and_never_convicted() -> None:
    """Calibration may have chosen the range; without the scales no one can tell."""
    x = normal(13, 8, 64)
    right = x + np.float32(0.25)
    scores = []
    for share in (0.95, 0.85, 0.7, 0.6, 0.45, 0.3):
        low, high = share * right.min(), share * right.max()
        step = np.float32((high - low) / 255)
        y = np.asarray(np.rint(np.clip(right, low, high) / step) * step, np.float32)
        got = judged([node("Add", "x c", "y")], x, {"y": y}, "int8", {"c": np.array(0.25, np.float32)})
        assert not got.convicted, share
        assert got.value is not None
        scores.append(got.value)
    assert max(scores[:2]) < SUSPECT < min(scores[-2:])


def test_saturation_in_half_precision_is_a_fault() -> None:
    y = np.clip(np.tanh(X), -0.6, 0.6)
    assert judged([node("Tanh", "x", "y")], X, {"y": y}, "fp16").convicted


def test_one_sided_rounding_of_int8_levels_is_convicted() -> None:
    """Floor instead of nearest is within a step everywhere; only its mean betrays it."""
    x = np.rint(normal(14, 4, 20, 20) * 40).astype(np.float32) / 40
    nodes = [node("AveragePool", "x", "y", kernel_shape=[2, 2], strides=[1, 1])]
    x = x[:, None]
    right = (x[..., :-1, :-1] + x[..., 1:, :-1] + x[..., :-1, 1:] + x[..., 1:, 1:]) / 4
    step = np.float32(1 / 40)
    nearest, floor = (np.asarray(f(right / step) * step, np.float32) for f in (np.rint, np.floor))
    assert not judged(nodes, x, {"y": nearest}, "int8").convicted
    assert judged(nodes, x, {"y": floor}, "int8").convicted


@pytest.mark.parametrize("how", ["fp16", "bf16", "int8"])
def test_rounded_weights_are_not_held_against_the_operator(how: str) -> None:
    """The target computes exactly, on weights that it rounded."""
    model = model_of([node("MatMul", "x w", "y")], {"x": X.shape}, weights={"w": normal(15, 16, 32, scale=0.25)})
    target = run_target(model, {"x": X}, how)
    assert not judge_of(model, {"x": X}, target, how).judge("y").convicted
    assert judge_of(model, {"x": X}, target, "fp32").judge("y").convicted


def test_thresholds_are_in_order() -> None:
    assert 1 < SUSPECT < CONVICT


def test_a_sum_over_a_whole_map_one_by_one_is_no_fault() -> None:
    x = np.abs(normal(61, 1, 2, 64, 64))
    model = model_of([node("GlobalAveragePool", "x", "y")], {"x": x.shape})
    target = run_target(model, {"x": x}, faults={"y": scaled(1 + 5e-5)})
    assert not judge_of(model, {"x": x}, target, "fp32").judge("y").convicted


def test_what_a_fault_above_drives_beyond_the_calibrated_range_saturates_and_accuses_nobody() -> None:
    """Nearly all of the second product is clipped: its scale was chosen for the values of a right first one."""
    x = np.abs(normal(62, 8, 16))
    weights = {"w": np.abs(normal(63, 16, 16)), "v": np.abs(normal(64, 16, 8))}
    model = model_of([node("MatMul", "x w", "m"), node("MatMul", "m v", "y")], {"x": x.shape}, weights=weights)
    right = run_target(model, {"x": x}, "int8")
    driven = run_target(model, {"x": x}, "int8", {"m": scaled(6)})
    saturated = {**driven, "y": np.clip(driven["y"], 0, np.sort(right["y"].ravel())[-2])}
    got = judge_of(model, {"x": x}, saturated, "int8").judge("y")
    assert got.score.introduced > 0.5
    assert not got.convicted
    assert judge_of(model, {"x": x}, {**driven, "y": 0.5 * driven["y"]}, "int8").judge("y").convicted
