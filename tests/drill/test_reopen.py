"""A run opened again gives the very values that it was judged on: of every layout, format and precision in models/."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from drill_cases import BUGS, CULPRIT, POOL, ROOT, command_of, result_of

from bisect_align.cli.main import main
from bisect_align.cli.reopen import options_of
from bisect_align.errors import BisectAlignError, DumpError
from bisect_align.metrics.measure import measure
from bisect_align.model.region import region
from bisect_align.result.files import read
from bisect_align.result.result import State
from bisect_align.session.reopen import Reopened

CASES = (
    POOL,
    BUGS / "ort-fp16-quantizelinear-truncates",
    BUGS / "openvino-argmin-ties-bf16-rounding",
    BUGS / "openvino-convtranspose-autopad-shape",
    BUGS / "ort-layernorm-cancellation-nan",
    ROOT / "models" / "healthy" / "rknn-mnist-int8",
    ROOT / "models" / "healthy" / "tpumlir_cvimodel-ppocr_cls-bf16",
    ROOT / "models" / "healthy" / "tflite-tinyformer-fp32",
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_are_those_that_the_run_measured(case: Path, tmp_path: Path) -> None:
    folder = result_of(case, tmp_path / "out")
    result = read(folder)
    run = Reopened(result, options_of(result, folder))
    measured = [row for row in result.tensors if row.accumulated is not None and row.accumulated.rel_l2 is not None]
    assert len(measured) > 3
    for row in measured[:: max(len(measured) // 12, 1)]:
        figures = measure(run.golden(row.name), run.target(row.name))
        assert row.accumulated is not None
        assert (figures.mismatched, figures.worst) == (row.accumulated.mismatched, row.accumulated.worst), row.name
    for culprit in result.culprits:
        area = region(run.graph, culprit.region.output, frozenset(culprit.region.boundary))
        replay = run.replay(area, "target")
        assert replay.against.mismatched == culprit.introduced.mismatched
        assert replay.score is not None


@pytest.mark.parametrize("asked", ["", "--policy=classic", "--policy=classic --threshold=histogram=0.01"])
def test_states_are_those_of_the_run(asked: str, tmp_path: Path) -> None:
    folder = result_of(POOL, tmp_path, *asked.split())
    result = read(folder)
    run = Reopened(result, options_of(result, folder))
    known = {row.name: (row.state, row.reason) for row in result.tensors if row.accumulated is not None}
    assert {State.GOOD, State.BAD} <= {state for state, _ in known.values()}
    assert {tensor: (one.state, one.reason) for tensor, one in run.compare(list(known))} == known


def test_the_golden_replay_of_a_region_is_the_golden(tmp_path: Path) -> None:
    folder = result_of(POOL, tmp_path)
    result = read(folder)
    run = Reopened(result, options_of(result, folder))
    area = region(run.graph, CULPRIT, frozenset(result.culprits[0].region.boundary))
    replay = run.replay(area, "golden")
    np.testing.assert_array_equal(replay.made, run.golden(CULPRIT))
    assert replay.score is None


def test_a_tensor_that_was_not_dumped_has_no_target_value(tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(POOL, case)
    (case / "dump" / "_bn1_BatchNormalization_output_0.npy").unlink()
    result = read(folder := result_of(case, tmp_path / "out"))
    run = Reopened(result, options_of(result, folder))
    with pytest.raises(DumpError, match="not in the dump"):
        run.target("/bn1/BatchNormalization_output_0")
    (case / "dump" / "_r1_Relu_output_0.npy").unlink()
    with pytest.raises(DumpError, match="no longer"):
        Reopened(result, options_of(result, folder)).target("/r1/Relu_output_0")


def test_another_model_is_not_taken_for_the_one_of_the_run(tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(POOL, case)
    result = read(folder := result_of(case, tmp_path / "out"))
    (case / "model.onnx").write_bytes((BUGS / "openvino-argmin-ties" / "model.onnx").read_bytes())
    shutil.copy(BUGS / "openvino-argmin-ties" / "inputs.npz", case)
    with pytest.raises(BisectAlignError):
        Reopened(result, options_of(result, folder))


def test_relative_paths_are_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(POOL, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    assert main(["model.onnx", "--target-dump", "dump", "-o", "results/one", "--quiet", "--threshold", "cosine=0.9"]) == 1
    monkeypatch.chdir(tmp_path.parent)
    folder = tmp_path / "case" / "results" / "one"
    options = options_of(read(folder), folder)
    assert options.model.samefile(tmp_path / "case" / "model.onnx")
    assert options.target_dump.samefile(tmp_path / "case" / "dump")
    assert options.thresholds == {"cosine": 0.9}
    (tmp_path / "case" / "model.onnx").unlink()
    with pytest.raises(BisectAlignError, match="not there"):
        options_of(read(folder), folder)


def test_the_command_of_a_case_is_read_as_it_was_given(tmp_path: Path) -> None:
    words = command_of(POOL, tmp_path)
    assert main(words) == 1
    options = options_of(read(tmp_path), tmp_path)
    assert [str(options.model), str(options.target_dump), str(options.out)] == [words[0], words[2], words[4]]
