"""A case for every operator, and what comes back judged operator by operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from tiny_target import convolutional, mixed, model_of, node, normal, write_dump, write_model

from bisect_align.cli.main import main
from bisect_align.errors import BisectAlignError, DumpError, UsageError
from bisect_align.repro.every import write_every
from bisect_align.repro.returned import Report, State, judge_returned

Array = NDArray[Any]
Change = Callable[[str, str, Array], Array | None]


def cases(folder: Path, model: onnx.ModelProto, inputs: dict[str, Array], **how: Any) -> Path:
    path = write_model(folder, model)
    write_dump(folder / "inputs.npz", inputs)
    return write_every(path, folder / "cases", **how).folder


def returned(source: Path, place: Path, change: Change = lambda case, kind, y: y) -> Path:
    """What a target makes of the cases: ONNX Runtime with its optimisations on, changed as told (None: not returned)."""
    for case in json.loads((source / "index.json").read_text())["cases"]:
        session = ort.InferenceSession(str(source / case["folder"] / case["golden_model"]), providers=["CPUExecutionProvider"])
        for one in case["sets"]:
            data = source / case["folder"] / one["folder"]
            feeds = {g["name"]: np.load(data / f"input_{k}.npy") for k, g in enumerate(case["inputs"])}
            for k, y in enumerate(session.run([g["name"] for g in case["outputs"]], feeds)):
                y = change(case["folder"], one["kind"], y)
                if y is not None:
                    there = place / case["folder"] / one["folder"]
                    there.mkdir(parents=True, exist_ok=True)
                    np.save(there / f"output_{k}.npy", y)
    return place


def states(report: Report) -> set[tuple[str, str, State]]:
    return {(v.case, v.kind, v.state) for v in report.verdicts if v.state is not State.RIGHT}


def half(case: str, kind: str, y: Array) -> Array:
    with np.errstate(over="ignore"):
        return y.astype(np.float16).astype(y.dtype)


def test_every_operator_has_real_and_edge_values_and_their_goldens(tmp_path: Path) -> None:
    place = cases(tmp_path, convolutional(), {"x": normal(1, 1, 3, 10, 8)})
    index = json.loads((place / "index.json").read_text())
    assert [c["op"] for c in index["cases"]] == [n.op_type for n in convolutional().graph.node]
    kinds = [s["kind"] for s in index["cases"][0]["sets"]]
    assert kinds == ["real", "zeros", "negatives", "tiny", "huge", "denormal", "nan", "inf"]
    values = {kind: np.load(place / "0000-Conv" / f"test_data_set_{k}" / "input_0.npy") for k, kind in enumerate(kinds)}
    assert not values["zeros"].any()
    assert (values["negatives"] <= 0).all()
    assert 0 < np.abs(values["denormal"]).max() < np.finfo(np.float32).smallest_normal
    assert np.isnan(values["nan"]).any()
    assert np.isinf(values["inf"]).any()
    for k in range(len(kinds)):
        for file in (place / "0000-Conv" / f"test_data_set_{k}").glob("*.pb"):
            tensor = onnx.TensorProto()
            tensor.ParseFromString(file.read_bytes())
            np.testing.assert_array_equal(numpy_helper.to_array(tensor), np.load(file.with_suffix(".npy")))


def test_ids_and_masks_stay_valid(tmp_path: Path) -> None:
    nodes = [node("Gather", "t ids", "e"), node("Mul", "e mask", "m"), node("Reshape", "m s", "r")]
    model = model_of(nodes, {"mask": (5, 16)}, weights={"t": normal(1, 30, 16), "s": np.array([4, 20])})
    model.graph.input.append(onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, (5,)))
    mask = (np.arange(80).reshape(5, 16) % 3 > 0).astype(np.float32)
    place = cases(tmp_path, model, {"mask": mask, "ids": np.array([1, 29, 3, 0, 7])})
    index = {c["op"]: c for c in json.loads((place / "index.json").read_text())["cases"]}
    assert [s["kind"] for s in index["Gather"]["sets"]] == ["real"]
    where = [g["name"] for g in index["Mul"]["inputs"]].index("mask")
    for one in index["Mul"]["sets"]:
        np.testing.assert_array_equal(np.load(place / index["Mul"]["folder"] / one["folder"] / f"input_{where}.npy"), mask)


def test_distinct_operators_are_written_once(tmp_path: Path) -> None:
    place = cases(tmp_path, mixed(4), {"x": normal(1, 8, 24)}, distinct=True)
    index = json.loads((place / "index.json").read_text())
    assert [c["op"] for c in index["cases"]] == ["MatMul", "Add", "Tanh", "Mul"]
    assert index["cases"][0]["same"] == ["n_m1", "n_m2", "n_m3"]


def test_a_healthy_target_is_right_at_its_precision(tmp_path: Path) -> None:
    place = cases(tmp_path, mixed(2), {"x": normal(1, 8, 24)})
    exact = judge_returned(place, returned(place, tmp_path / "fp32"))
    assert exact.precision == "fp32"
    assert not states(exact)
    coarse = judge_returned(place, returned(place, tmp_path / "fp16", half))
    assert coarse.precision == "fp16"
    assert not coarse.wrong
    assert judge_returned(place, tmp_path / "fp16", "fp32").wrong


def test_the_wrong_operator_and_the_missing_one_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = cases(tmp_path, mixed(2), {"x": normal(1, 8, 24)})

    def change(case: str, kind: str, y: Array) -> Array | None:
        if case == "0002-Tanh" and kind == "real":
            y[3, 5] += 0.1
        return None if case == "0005-Add" else y

    outputs = returned(place, tmp_path / "out", change)
    report = judge_returned(place, outputs)
    assert {(v.case, v.kind) for v in report.wrong} == {("0002-Tanh", "real")}
    assert {v.case for v in report.verdicts if v.state is State.MISSING} == {"0005-Add"}
    assert main(["compare", str(place), str(outputs)]) == 1
    said = capsys.readouterr().out
    assert "wrong       0002-Tanh" in said
    assert "0005-Add" in said


def test_what_flushes_nan_is_wrong(tmp_path: Path) -> None:
    place = cases(tmp_path, mixed(1), {"x": normal(1, 8, 24)})
    outputs = returned(place, tmp_path / "out", lambda case, kind, y: np.nan_to_num(y) if "Tanh" in case else y)
    assert {(v.case, v.kind) for v in judge_returned(place, outputs).wrong} == {("0002-Tanh", "nan")}


def test_trouble_is_said(tmp_path: Path) -> None:
    place = cases(tmp_path, mixed(1), {"x": normal(1, 8, 24)})
    (tmp_path / "empty").mkdir()
    with pytest.raises(DumpError, match="no output of any case") as error:
        judge_returned(place, tmp_path / "empty")
    assert "test_data_set_0/output_0.npy" in error.value.hint
    with pytest.raises(UsageError, match="no cases"):
        judge_returned(tmp_path / "empty", place)
    index = json.loads((place / "index.json").read_text())
    index["cases"][0]["folder"] = "../../secret"
    (place / "index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="path"):
        judge_returned(place, tmp_path / "empty")
    with pytest.raises(BisectAlignError):
        write_every(tmp_path / "nowhere.onnx", tmp_path / "x")
