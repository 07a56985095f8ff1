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
    assert "0002-Tanh (n_t0), t0, real inputs" in said
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
    for name in ("../../secret", ".."):
        index["cases"][0]["folder"] = name
        (place / "index.json").write_text(json.dumps(index))
        with pytest.raises(UsageError, match="path"):
            judge_returned(place, tmp_path / "empty")
    with pytest.raises(BisectAlignError):
        write_every(tmp_path / "nowhere.onnx", tmp_path / "x")


def said(place: Path, outputs: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = main(["compare", str(place), str(outputs), *more])
    got = capsys.readouterr()
    return code, got.out, got.err


def test_what_cannot_be_read_is_not_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = cases(tmp_path, mixed(2), {"x": normal(1, 8, 24)})
    outputs = returned(place, tmp_path / "out", lambda case, kind, y: np.zeros(y.shape, np.int32) if "Tanh" in case else y)
    (outputs / "0000-MatMul" / "test_data_set_0" / "output_0.npy").write_bytes(b"")
    (outputs / "0001-Add" / "test_data_set_0" / "output_0.npy").write_bytes(b"no header")
    code, out, _ = said(place, outputs, capsys)
    assert code == 1
    assert "16 outputs: holds int32 where the output is float32" in out
    assert "1 outputs: is empty: " in out
    assert "0001-Add" in out
    assert "0 wrong, 18 not readable" in out
    assert said(place, outputs, capsys, "--json")[0] == 1


def test_nothing_judged_is_trouble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = cases(tmp_path, mixed(1), {"x": normal(1, 8, 24)})
    outputs = returned(place, tmp_path / "out", lambda case, kind, y: np.zeros(y.shape, np.int32))
    code, out, err = said(place, outputs, capsys)
    assert (code, out) == (2, "")
    assert "32 outputs: holds int32 where the output is float32" in err
    assert len(err.strip().splitlines()) == 1
    assert said(place, place, capsys)[0] == 2


def test_damaged_cases_are_named_and_the_rest_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = cases(tmp_path, mixed(1), {"x": normal(1, 8, 24)})
    outputs = returned(place, tmp_path / "out")
    (place / "0002-Tanh" / "test_data_set_1" / "input_0.npy").write_bytes(b"")
    (place / "0003-Mul" / "model.onnx").write_bytes(b"\x00")
    code, out, _ = said(place, outputs, capsys)
    assert code == 1
    assert "input_0.npy" in out
    assert "0003-Mul/model.onnx" in out
    assert "23 right, 0 wrong, 9 not readable" in out
    index = json.loads((place / "index.json").read_text())
    del index["cases"][0]["golden_model"]
    (place / "index.json").write_text(json.dumps(index))
    code, out, err = said(place, outputs, capsys)
    assert code == 2
    assert "golden_model" in err
    assert "internal" not in err


def halves(kind: int) -> onnx.ModelProto:
    weights = {"w": normal(1, 8, 8).astype(onnx.helper.tensor_dtype_to_np_dtype(kind))}
    return model_of([node("MatMul", "x w", "m"), node("Relu", "m", "r")], {"x": (4, 8)}, weights=weights, kind=kind)


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_raw_outputs_have_the_golden_type_or_the_models_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: int
) -> None:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    place = cases(tmp_path, halves(kind), {"x": normal(3, 4, 8).astype(dtype)})
    outputs = returned(place, tmp_path / "out")
    for file in outputs.rglob("*.npy"):
        values = np.load(file)
        (values if "Relu" in str(file) else values.astype(dtype)).tofile(file.with_suffix(".bin"))
        file.unlink()
    code, out, _ = said(place, outputs, capsys)
    assert code == 0, out
    assert "0 wrong, 0 not readable, 0 not returned" in out
    next(outputs.rglob("*.bin")).write_bytes(bytes(1024))
    code, out, _ = said(place, outputs, capsys)
    assert code == 1
    assert "holds 1024 bytes, expected 128 (float32 [4, 8]) or 64" in out
    assert "0 wrong, 1 not readable" in out


def test_a_model_that_casts_to_half_is_compared(tmp_path: Path) -> None:
    nodes = [node("Cast", "x", "c", to=onnx.TensorProto.FLOAT16), node("MatMul", "c w", "m"), node("Cast", "m", "y", to=1)]
    model = model_of(nodes, {"x": (4, 8)}, weights={"w": normal(1, 8, 8).astype(np.float16)})
    place = cases(tmp_path, model, {"x": normal(3, 4, 8)})
    assert not states(judge_returned(place, returned(place, tmp_path / "right")))
    bad = returned(place, tmp_path / "wrong", lambda case, kind, y: y * np.float32(1.1) if "0000" in case else y)
    assert {(v.case, v.kind) for v in judge_returned(place, bad).wrong} >= {("0000-Cast", "real")}


@pytest.mark.parametrize(
    ("change", "label"),
    [
        (lambda y: y.ravel(), "laid out flat"),
        (lambda y: np.ascontiguousarray(y.transpose(0, 2, 3, 1)), "laid out CL"),
    ],
)
def test_other_layouts_are_right_and_still_wrong_where_a_value_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Array], Array], label: str
) -> None:
    place = cases(tmp_path, convolutional(), {"x": normal(1, 1, 3, 10, 8)})
    outputs = returned(place, tmp_path / "out", lambda case, kind, y: change(y) if y.size > y.shape[1] else y)
    code, out, _ = said(place, outputs, capsys)
    assert code == 0, out
    assert label in out

    def spoilt(case: str, kind: str, y: Array) -> Array:
        if "0003-Conv" in case and kind == "real":
            y[0, 1] *= np.float32(1.5)
        return change(y) if y.size > y.shape[1] else y

    report = judge_returned(place, returned(place, tmp_path / "bad", spoilt))
    assert {(v.case, v.kind) for v in report.wrong} == {("0003-Conv", "real")}


def test_wrong_shapes_that_no_layout_explains_stay_wrong(tmp_path: Path) -> None:
    model = model_of([node("Transpose", "x", "t", perm=[1, 0]), node("Tanh", "t", "y")], {"x": (4, 6)})
    place = cases(tmp_path, model, {"x": normal(1, 4, 6)})

    def change(case: str, kind: str, y: Array) -> Array:
        return np.ascontiguousarray(y.T) if "Transpose" in case else y.reshape(2, 12)  # left out; and no layout of it

    report = judge_returned(place, returned(place, tmp_path / "out", change))
    assert len(report.wrong) == len(report.verdicts)


def test_integers_in_other_types_are_compared_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Cast", "x", "c", to=onnx.TensorProto.INT8), node("Greater", "x z", "g"), node("Abs", "c", "a")]
    model = model_of(nodes, {"x": (4, 6)}, ["g", "a"], weights={"z": np.float32(0)})
    place = cases(tmp_path, model, {"x": normal(1, 4, 6, scale=20)})
    outputs = returned(
        place, tmp_path / "out", lambda case, kind, y: y.astype(np.float32 if kind == "real" or y.dtype == bool else np.uint8)
    )
    code, out, _ = said(place, outputs, capsys)
    assert code == 1
    assert "float32 where the output is bool" in out
    assert "float32 where the output is int8" in out
    assert "holds uint8 values that int8, the type of the output, does not have" in out
    assert "0 wrong" in out


def test_a_wrong_count_of_exact_inputs_is_wrong(tmp_path: Path) -> None:
    model = model_of([node("Greater", "x z", "g"), node("NonZero", "g", "n")], {"x": (4, 6)}, weights={"z": np.float32(0)})
    place = cases(tmp_path, model, {"x": normal(1, 4, 6)})
    outputs = returned(place, tmp_path / "out", lambda case, kind, y: y[:, 1:] if "NonZero" in case else y)
    assert {v.case for v in judge_returned(place, outputs).wrong} == {"0001-NonZero"}


def test_sets_of_a_case_share_a_line_and_what_was_not_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = cases(tmp_path, mixed(1), {"x": normal(1, 8, 24)})
    outputs = returned(place, tmp_path / "out", lambda case, kind, y: y + np.float32(1) if "Tanh" in case else y)
    (outputs / "0009-Foo").mkdir()
    for name in ("0009-Foo/output_0.npy", "0002-Tanh/test_data_set_0/output_7.npy"):
        (outputs / name).write_bytes(b"")
    code, out, _ = said(place, outputs, capsys)
    assert code == 1
    (line,) = [line for line in out.splitlines() if line.strip().startswith("wrong")]
    assert "real, zeros, negatives" in line
    assert "0009-Foo" in out
    assert "0002-Tanh/test_data_set_0/output_7.npy" in out
