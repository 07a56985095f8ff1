"""What to do next: every step names a tensor that can be dumped or a node that can be kept, and the figures for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_target import channel, mixed, model_of, node, normal, run_target, write_dump, write_model

from bisect_align.report.terminal import text
from bisect_align.result.result import Kind, Result, Verdict
from bisect_align.session.options import Options
from bisect_align.session.run import run

Array = NDArray[Any]
MODELS = Path(__file__).resolve().parents[2] / "models"
NET, ROWS = mixed(4), {"x": normal(91, 8, 24)}


def run_on(folder: Path, values: dict[str, Array], only: list[str], **more: Any) -> Result:
    return run(
        Options(
            model=write_model(folder, NET),
            target_dump=write_dump(folder / "dump.npz", values, only),
            inputs=write_dump(folder / "inputs.npz", ROWS),
            **more,
        )
    )


def real(name: str, **more: Any) -> Result:
    folder = MODELS / "bugs" / name
    truth = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    return run(
        Options(model=folder / truth["model"], target_dump=folder / truth["dump"], inputs=folder / truth["inputs"], **more)
    )


def dumped(result: Result) -> list[str]:
    """The tensors that the steps ask to dump."""
    return [name for step in result.next if step.startswith("Dump") for name in re.findall(r"'([^']+)'", step)]


def test_a_wide_culprit_is_halved(tmp_path: Path) -> None:
    result = run_on(tmp_path, run_target(NET, ROWS, "fp32", {"b2": channel(1, -3.0)}), ["g3"], precision="fp32")
    assert result.verdict is Verdict.FAULT
    assert dumped(result) == ["g1", "g0", "g2"]
    assert any("16 nodes (at most 8 are left)" in step for step in result.next)


def test_following_the_advice_ends_at_the_node(tmp_path: Path) -> None:
    """Each round dumps the first tensor that the run asks for: the region halves until one node is left."""
    values, known = run_target(NET, ROWS, "fp32", {"b2": channel(1, -3.0)}), ["g3"]
    sizes = []
    while True:
        result = run_on(tmp_path, values, known, precision="fp32")
        (culprit,) = result.culprits
        sizes.append(len(culprit.region.nodes))
        asked = dumped(result)
        if not asked:
            break
        known.append(asked[0])
    assert sizes == [16, 8, 4, 2, 1]
    assert culprit.region.output == "b2"


def test_an_undecided_run_asks_for_what_halves_it(tmp_path: Path) -> None:
    """One tensor does not tell the precision: more of them would."""
    result = run_on(tmp_path, run_target(NET, ROWS, "int8"), ["g3"])
    assert result.verdict is Verdict.UNDECIDED
    assert dumped(result) == ["g1", "g0", "g2"]


def test_an_output_that_is_not_in_the_dump_is_an_open_region(tmp_path: Path) -> None:
    result = run_on(tmp_path, run_target(NET, ROWS, "int8"), ["b0"])
    assert result.verdict is Verdict.UNDECIDED
    first = dumped(result)[0]
    assert first in ("m2", "t1", "g1", "b2"), "the middle of what lies below b0"


def test_what_cannot_be_compared_is_not_asked_for(tmp_path: Path) -> None:
    """The shape of a Reshape is computed in the graph: it is never compared."""
    nodes = [
        node("Tanh", "x", "a"),
        node("Shape", "a", "s"),
        node("Identity", "s", "i"),
        node("Reshape", "a i", "r"),
        node("MatMul", "r w", "y"),
    ]
    model = model_of(nodes, {"x": (8, 24)}, weights={"w": normal(1, 24, 24)})
    values = run_target(model, ROWS, "fp32", {"y": channel(1, -3.0)})
    result = run(
        Options(
            model=write_model(tmp_path, model),
            target_dump=write_dump(tmp_path / "dump.npz", values, ["y"]),
            inputs=write_dump(tmp_path / "inputs.npz", ROWS),
            precision="fp32",
        )
    )
    assert result.verdict is Verdict.FAULT
    assert dumped(result)
    assert not {"s", "i"} & set(dumped(result))


@pytest.mark.parametrize(
    ("name", "output", "figures"),
    [
        ("qnn-tinyformer-int8-attention-mask", "/blocks.0/attn/Add_output_0", "[-1e+04, 2.593]"),
        ("rknn-tinyformer-int8-attention-mask", "/blocks.0/attn/MatMul_1_output_0", "52.2 %"),
    ],
)
def test_a_signal_that_the_format_destroys_is_to_be_kept_exact(name: str, output: str, figures: str) -> None:
    result = real(name, scan=True)
    assert result.culprits[0].kind is Kind.PRECISION_LOSS
    (step, *_) = [s for s in result.next if "higher precision" in s]
    assert repr(output) in step
    assert figures in step


@pytest.mark.parametrize("tensor", ["m1", "b2", "g1"])
def test_a_range_that_calibration_cut_is_to_be_widened(tmp_path: Path, tensor: str) -> None:
    """int8, all above half of the largest value is cut off: a suspect, since nobody can tell without the scales."""

    def cut(y: Array) -> Array:
        high = y.max() / 2
        step = np.float32((high - y.min()) / 255)
        return np.asarray(np.rint(np.clip(y, y.min(), high) / step) * step, np.float32)

    names = [f"{kind}{k}" for k in range(4) for kind in "mbtg"]
    golden = run_target(NET, ROWS)[tensor]
    result = run_on(tmp_path, run_target(NET, ROWS, "int8", {tensor: cut}), names, precision="int8")
    assert [s.region.output for s in result.suspects] == [tensor]
    (step,) = [s for s in result.next if s.startswith("Widen")]
    assert repr(tensor) in step
    assert f"the golden spans [{golden.min():.4g}, {golden.max():.4g}]" in step
    healthy = run_on(tmp_path, run_target(NET, ROWS, "int8"), names, precision="int8")
    assert not [s for s in healthy.next if s.startswith("Widen")]


# ---- equal culprits --------------------------------------------------------------------------------------------------------
def test_equal_culprits_of_a_real_run_are_shown_once() -> None:
    result = real("qnn-ppocr_cls-int8-batchnorm", scan=True)
    first, *others = result.culprits
    assert len(others) == 8
    assert first.same_as == tuple(c.region.output for c in others)
    assert all(c.same_as == (first.region.output,) for c in others)
    shown = text(result)
    assert "9 × BatchNormalization(epsilon=1e-05, momentum=0.9)" in " ".join(shown.split())
    assert "Culprit 1 of 9" in shown
    assert "Culprit 2 of 9" not in shown
    assert "Further culprits" not in shown
    assert "all alike" in result.summary.replace("\n", " ")


def test_two_faults_of_two_kinds_are_no_group() -> None:
    result = real("ort-two-independent-faults", scan=True)
    assert [c.same_as for c in result.culprits] == [(), ()]


@pytest.mark.parametrize("given", [False, True])
def test_the_dump_of_a_quantised_model_asks_for_that_model_first(given: bool) -> None:
    folder = MODELS / "healthy" / "quark-mnist-int8"
    truth = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    result = run(
        Options(
            model=folder / truth["model"],
            target_dump=folder / truth["dump"],
            inputs=folder / truth["inputs"],
            quantized_model=folder / "quantized.onnx" if given else None,
        )
    )
    asked = [at for at, step in enumerate(result.next) if "--quantized-model" in step]
    assert asked == ([] if given else [0])


def test_a_dump_of_floats_asks_for_no_quantised_model(tmp_path: Path) -> None:
    result = run_on(tmp_path, run_target(NET, ROWS, "int8"), ["g1", "g3"])
    assert not any("--quantized-model" in step for step in result.next)
