"""Every real bug in models/ as a repro: small, self-verified, telling the fault from the control."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from case_json import options_of

from bisect_align.repro import alone
from bisect_align.repro.chosen import chosen
from bisect_align.repro.write import write
from bisect_align.session.reopen import Reopened
from bisect_align.session.run import run

BUGS = Path(__file__).resolve().parents[2] / "models" / "bugs"
# Regions that the dump cannot split: fused kernels, culprits that were not dumped.
MISSED = {"ort-fp16-layernorm-cancellation-in-noise"}  # docs/limits.md
WIDE = {
    "onnx2pytorch-celu-alpha-bf16",
    "onnxref-batchnorm-ppocr-real-model",
    "openvino-reducesum-add-fusion",
    "ort-gemm-transpose-fusion-identity-perm",
    "ort-qdq-resize-integer-truncation",
    "rknn-tinyformer-int8-attention-mask",
    "tpumlir_cmodel-tinyformer-f16-fattention",
}
# The same boundary values in dump and control, so that the control's output is what a mended target would return.
MENDED = (
    "ort-averagepool19-end-padding",
    "openvino-argmin-ties",
    "tract-scatternd-reduction-ignored",
    "onnxref-lrn-loop-over-batch",
)


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(BUGS.glob("*/case.json")):
        yield file.parent.name, json.loads(file.read_text(encoding="utf-8"))


def script(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "repro.py"), *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("name", "truth"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_bug_becomes_a_case_that_shows_it(name: str, truth: dict[str, Any], tmp_path: Path) -> None:
    options = options_of(BUGS / name, truth)
    result = run(options)
    assert bool(result.culprits) == (name not in MISSED)
    if not result.culprits:
        return  # tests/corpus counts it; there is no case to write
    opened = Reopened(result, options)
    title, culprit = chosen(opened, result)[0]
    made = write(opened, result, culprit, tmp_path / title)
    assert made.verified, made.text
    assert made.above == 0
    assert name in WIDE or made.nodes == 1
    onnx.checker.check_model(onnx.load(made.folder / "model.onnx"), full_check=True)
    assert (made.folder / "target_output_0.npy").is_file()
    assert "NOT REPRODUCED" not in (made.folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MENDED)
@pytest.mark.parametrize("minimize", [False, True])
def test_a_mended_target_agrees(name: str, minimize: bool, tmp_path: Path) -> None:
    truth = dict(cases())[name]
    options = options_of(BUGS / name, truth)
    result = run(options)
    opened = Reopened(result, options)
    ((_, culprit),) = chosen(opened, result)
    made = write(opened, result, culprit, tmp_path / "case", minimize=minimize)
    assert made.verified, made.text
    assert script(made.folder).returncode == 1
    mended = options_of(BUGS / name, truth, "control")
    value = Reopened(run(mended), mended).target(culprit.region.output)
    if minimize:
        assert culprit.introduced.worst is not None
        value = value[culprit.introduced.worst]
    np.save(tmp_path / "mended.npy", value)
    done = script(made.folder, "--target-output", tmp_path / "mended.npy")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_script_needs_numpy_and_onnxruntime_alone() -> None:
    tree = ast.parse(Path(alone.__file__).read_text(encoding="utf-8"))
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {n.partition(".")[0] for n in names} - sys.stdlib_module_names == {"numpy", "onnxruntime"}
