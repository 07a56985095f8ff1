"""A dump that holds weights tells a wrong weight from a wrong kernel; a quantised twin's weights are compared with the model's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from tiny_target import mixed, model_of, node, normal, run_target, write_dump, write_model

from bisect_align.judgement.precision import round_to
from bisect_align.model.graph import graph_of
from bisect_align.result.result import Result, Verdict
from bisect_align.session.options import Options
from bisect_align.session.run import run
from bisect_align.session.twins import twins_apart

Array = NDArray[Any]
X = {"x": normal(5, 8, 24)}
CHANGES: dict[str, tuple[Callable[[Array], Array], str]] = {
    "transposed": (lambda w: w.T, "axes [1, 0] exchanged"),
    "negated": (lambda w: -w, "negated"),
    "reversed": (lambda w: w[::-1], "axis 0 in reverse order"),
    "rounded": (lambda w: round_to(w, "int8 tensor"), "rounded to int8, one step"),
}


def with_weight(model: onnx.ModelProto, name: str, value: Array) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), name))
    return changed


def judged(tmp_path: Path, used: Array, dumped: Array | None, precision: str = "fp32") -> Result:
    """A target that ran `mixed` with another weight w1, and dumped one."""
    model = mixed()
    values = run_target(with_weight(model, "w1", used), X, precision)
    if dumped is not None:
        values["w1"] = np.ascontiguousarray(dumped)
    dump, inputs = write_dump(tmp_path / "dump.npz", values), write_dump(tmp_path / "inputs.npz", X)
    return run(Options(model=write_model(tmp_path, model), target_dump=dump, inputs=inputs))


# Rounding a weight to int8 is inside the noise of coarser runs.
@pytest.mark.parametrize(
    ("how", "precision"),
    [(h, p) for h in sorted(CHANGES) for p in ("fp32", "fp16", "bf16", "int8") if h != "rounded" or p == "fp32"],
)
def test_a_wrong_weight_acquits_the_kernel(tmp_path: Path, how: str, precision: str) -> None:
    change, words = CHANGES[how]
    wrong = change(graph_of(mixed()).constant("w1"))
    (culprit, *_) = judged(tmp_path, wrong, wrong, precision).culprits
    assert culprit.region.output == "m1"
    first = culprit.symptoms[0]
    assert first.name == "wrong weight"
    assert f"weight 'w1' in the dump differs from the model's, {words}" in first.text
    assert "the kernel is right" in first.text


@pytest.mark.parametrize("how", sorted(CHANGES))
def test_without_the_weight_it_is_a_guess(tmp_path: Path, how: str) -> None:
    change, words = CHANGES[how]
    (culprit, *_) = judged(tmp_path, change(graph_of(mixed()).constant("w1")), None).culprits
    assert all(s.name != "wrong weight" for s in culprit.symptoms)
    assert any(f"`weight 'w1' {words}`" in guess for guess in culprit.hypotheses)


@pytest.mark.parametrize("layout", ["its own", "the vendor's", "rounded"])
def test_a_right_weight_beside_a_wrong_kernel_says_nothing(tmp_path: Path, layout: str) -> None:
    w = graph_of(mixed()).constant("w1")
    held = {"its own": w, "the vendor's": w.T, "rounded": round_to(w, "fp16")}[layout]
    used = w[:, ::-1]  # as a kernel would that reverses its output
    (culprit, *_) = judged(tmp_path, used, held).culprits
    assert culprit.region.output == "m1"
    assert all("weight" not in s.name for s in culprit.symptoms)


def test_a_weight_that_is_not_the_cause_alone(tmp_path: Path) -> None:
    w = graph_of(mixed()).constant("w1")
    (culprit, *_) = judged(tmp_path, w[:, ::-1], normal(9, *w.shape)).culprits
    assert culprit.symptoms[0].name == "weight differs"
    assert "not the cause alone" in culprit.symptoms[0].text


def test_healthy_weights_are_not_looked_at(tmp_path: Path) -> None:
    w = graph_of(mixed()).constant("w1")
    assert judged(tmp_path, w, w).verdict is Verdict.ALIGNED


# ---- twins -----------------------------------------------------------------------------------------------------------------
def twin_of(codes: Array, scale: Array, axis: int) -> onnx.ModelProto:
    """x times the dequantised weight of this name."""
    nodes = [
        node("DequantizeLinear", "w_quantized w_scale w_zero", "w_DequantizeLinear_Output", axis=axis),
        node("MatMul", "x w_DequantizeLinear_Output", "y"),
    ]
    weights = {"w_quantized": codes, "w_scale": scale, "w_zero": np.zeros_like(scale, np.int8)}
    return model_of(nodes, {"x": (8, 6)}, weights=weights)


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize(
    ("change", "words"), [(lambda w: w, ""), (lambda w: w.T, "axes [1, 0] exchanged"), (np.negative, "negated")]
)
def test_a_twin_with_its_weights_in_another_order(change: Callable[[Array], Array], words: str, axis: int | None) -> None:
    w = normal(1, 6, 6)
    other = change(w)
    peak = np.abs(other).max(axis=None if axis is None else 1 - axis)
    scale = np.asarray(peak / 127, np.float32)
    steps = scale if axis is None else scale.reshape((-1, 1) if axis == 0 else (1, -1))
    codes = np.rint(other / steps).astype(np.int8)
    plain = graph_of(model_of([node("MatMul", "x w", "y")], {"x": (8, 6)}, weights={"w": w}))
    said = twins_apart(plain, graph_of(twin_of(codes, scale, axis or 0)))
    expected = [f"weight 'w' of the quantised model differs from the model's: {words}"] if words else []
    assert said == expected


def test_a_twin_says_nothing_of_weights_that_it_does_not_share() -> None:
    plain = graph_of(model_of([node("MatMul", "x other", "y")], {"x": (8, 6)}, weights={"other": normal(2, 6, 6)}))
    assert twins_apart(plain, graph_of(twin_of(np.ones((6, 6), np.int8), np.asarray(np.float32(0.1)), 0))) == []
