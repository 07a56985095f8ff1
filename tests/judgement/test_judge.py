"""What a run's own healthy regions teach, how far that may soften a score, and that no region votes for itself."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import Fault, Values, bench_of, channel, model_of, node, normal, run_target, scaled

from bisect_align.judgement.judge import CAP, CAP_CONV, CONVICT, LONE_CONV3, NORMAL, PEERS_MIN, Judge
from bisect_align.judgement.precision import PRECISIONS, Precision

Array = NDArray[np.float32]
FP16 = PRECISIONS["fp16"]


def matrices(count: int, op: str = "MatMul") -> onnx.ModelProto:
    """Matrix products with a Tanh between them: m0, t0, m1, t1, ..."""
    nodes, weights, x = [], {}, "x"
    for k in range(count):
        weights[f"w{k}"] = normal(k, 24, 24, scale=0.4)
        nodes += [node(op, f"{x} w{k}", f"m{k}"), node("Tanh", f"m{k}", f"t{k}")]
        x = f"t{k}"
    return model_of(nodes, {"x": (8, 24)}, weights=weights)


def convolutions(count: int, kernel: int) -> onnx.ModelProto:
    nodes, weights, x = [], {}, "x"
    for k in range(count):
        weights[f"w{k}"] = normal(k, 4, 4, kernel, kernel, scale=0.5 / kernel)
        pads = [kernel // 2] * 4
        nodes += [node("Conv", f"{x} w{k}", f"m{k}", pads=pads), node("Tanh", f"m{k}", f"t{k}")]
        x = f"t{k}"
    return model_of(nodes, {"x": (1, 4, 8, 8)}, weights=weights)


def noisy(units: float, seed: int) -> Fault:
    """Noise of so many rounding units, as of a kernel that accumulates coarsely."""

    def fault(y: Array) -> Array:
        noise = np.random.default_rng(seed).uniform(-1, 1, y.shape)
        return np.asarray(y + units * FP16.unit * noise * np.sqrt(np.mean(y**2)), np.float32)

    return fault


def judge_of(model: onnx.ModelProto, faults: Mapping[str, Fault], precision: Precision = FP16) -> Judge:
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    inputs = {"x": normal(99, *shape)}
    bench = bench_of(model, inputs)
    target = run_target(model, inputs, precision.name, faults)
    return Judge(bench, Values(target), bench.graph.tensors, precision)


def convicted(judge: Judge) -> list[str]:
    return [t for t in judge.tensors if judge.judge(t).convicted]


def test_a_noisy_kernel_family_is_learnt_from_its_peers() -> None:
    """Every MatMul is too noisy for its format; none of them is out of line with the others."""
    judge = judge_of(matrices(6), {f"m{k}": noisy(12, k) for k in range(6)})
    raw = [judge.raw(f"m{k}").value or 0 for k in range(6)]
    assert max(raw) > CONVICT
    assert convicted(judge) == []
    assert judge.factor("m0") > 1
    assert judge.factor("t0") == 1


def test_one_that_is_out_of_line_with_its_peers_is_convicted() -> None:
    faults = {f"m{k}": noisy(12, k) for k in range(6)} | {"m3": channel(1, 0.0)}
    assert convicted(judge_of(matrices(6), faults)) == ["m3"]


@pytest.mark.parametrize("factor", [1.02, 1.5, -100.0])
def test_no_region_votes_for_itself(factor: float) -> None:
    quiet = judge_of(matrices(6), {})
    loud = judge_of(matrices(6), {"m5": scaled(factor)})
    assert loud.factor("m5") == quiet.factor("m5")


def test_the_factor_is_the_median_of_the_others() -> None:
    judge = judge_of(matrices(7), {f"m{k}": noisy(8 + 3 * k, k) for k in range(7)})
    raw = {f"m{k}": judge.raw(f"m{k}").value or 0 for k in range(7)}
    for name in raw:
        others = statistics.median(v for n, v in raw.items() if n != name)
        assert judge.factor(name) == min(max(others / NORMAL, 1.0), CAP)


@pytest.mark.parametrize("count", [1, PEERS_MIN])
def test_too_few_peers_teach_nothing(count: int) -> None:
    judge = judge_of(matrices(count), {f"m{k}": scaled(1.5) for k in range(count)})
    assert {judge.factor(f"m{k}") for k in range(count)} == {1.0}
    assert convicted(judge) == [f"m{k}" for k in range(count)]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_a_fault_in_every_operator_of_a_class_is_still_found(precision: str) -> None:
    """The softening is capped, or peers that are all wrong would acquit each other."""
    judge = judge_of(matrices(6), {f"m{k}": scaled(1.5) for k in range(6)}, PRECISIONS[precision])
    assert all(1 <= judge.factor(t) <= CAP for t in judge.tensors)
    assert judge.factor("m0") == CAP
    assert convicted(judge) == [f"m{k}" for k in range(6)]


@pytest.mark.parametrize(("precision", "cap"), [("fp32", CAP_CONV), ("fp16", CAP_CONV), ("bf16", CAP), ("int8", CAP)])
def test_convolutions_of_fine_formats_have_a_wider_cap(precision: str, cap: float) -> None:
    judge = judge_of(convolutions(5, 1), {f"m{k}": scaled(3.0) for k in range(5)}, PRECISIONS[precision])
    assert judge.factor("m2") == cap
    assert cap >= CAP


def test_a_lone_wide_convolution_may_be_winograd_and_a_pointwise_one_is_not() -> None:
    assert judge_of(convolutions(1, 3), {}).factor("m0") == LONE_CONV3
    assert judge_of(convolutions(1, 1), {}).factor("m0") == 1


@pytest.mark.parametrize("strength", [1.0, 2.0, 4.0, 8.0])
def test_wide_convolutions_that_are_noisier_than_normal_are_taken_for_winograd(strength: float) -> None:
    faults = {f"m{k}": noisy(strength, k) for k in range(5)}
    judge = judge_of(convolutions(5, 3), faults)
    others = sorted(v for k in range(1, 5) if (v := judge.raw(f"m{k}").value) is not None)
    assert judge.factor("m0") == (
        1.0 if np.median(others) <= NORMAL else max(LONE_CONV3, min(np.median(others) / NORMAL, CAP_CONV))
    )
    assert judge_of(convolutions(5, 3), faults, PRECISIONS["bf16"]).factor("m0") <= CAP


def test_kernels_of_another_shape_are_no_peers() -> None:
    judge = judge_of(convolutions(5, 3), {f"m{k}": noisy(30, k) for k in range(5)})
    assert all(c[0] != "Conv" or c[1] == "3x3" for t in judge.tensors for c in judge.classes(t))
    assert judge.classes("m0") == judge.classes("m4") != judge.classes("t0")


def test_operators_that_move_values_have_no_class() -> None:
    nodes = [node("Transpose", "x", "a", perm=[1, 0]), node("Relu", "a", "b"), node("Tanh", "b", "c"), node("MatMul", "c x", "d")]
    model = model_of(nodes, {"x": (4, 4)})
    inputs = {"x": normal(1, 4, 4)}
    bench = bench_of(model, inputs)
    judge = Judge(bench, Values(run_target(model, inputs)), bench.graph.tensors, FP16)
    assert [judge.computes(t) for t in "abcd"] == [False, False, True, True]
    assert [judge.multiplies(t) for t in "abcd"] == [False, False, False, True]


def test_judging_one_or_all_gives_the_same_figures() -> None:
    faults = {f"m{k}": noisy(12, k) for k in range(5)}
    alone, together = judge_of(matrices(5), faults), judge_of(matrices(5), faults)
    everything = {t: together.judge(t) for t in together.tensors}
    assert alone.judge("m3") == everything["m3"]


def test_what_noise_can_hide_grows_with_the_factor() -> None:
    judge = judge_of(matrices(6), {f"m{k}": noisy(12, k) for k in range(6)})
    got = judge.judge("m0")
    assert got.factor > 1
    assert got.hides == pytest.approx(CONVICT * got.factor * got.score.expected * got.score.reach)
    assert got.score.reach > 1
    assert got.value == pytest.approx((got.score.value or 0) / got.factor)


def test_another_boundary_can_be_tried_without_changing_the_verdict() -> None:
    judge = judge_of(matrices(3), {"m1": scaled(2.0)})
    before = judge.raw("t1")
    other = judge.retry("t1", override={"m1": judge.observed.value("m1") / 2})
    assert (other.value or 0) > CONVICT
    assert judge.raw("t1") == before
