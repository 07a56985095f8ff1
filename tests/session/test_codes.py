"""A float model's dump of integer codes, read in the scales of its quantised twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from tiny_target import Array, Fault, entry, graph_of, model_of, node, normal, run_target, write_dump, write_model

from bisect_align.dumps.entry import Catalogue
from bisect_align.result.result import Result, Verdict
from bisect_align.session.codes import with_codes
from bisect_align.session.match import match
from bisect_align.session.options import Options
from bisect_align.session.run import run

X = {"x": normal(91, 2, 3, 10, 8)}
WEIGHTS = {"w": normal(1, 6, 3, 3, 3, scale=0.3), "v": normal(2, 4, 6, 3, 3, scale=0.3)}
X_SHAPES = {"x": (2, 3, 10, 8)}
REAL = ("/a/Conv_output_0", "/a/Relu_output_0", "/b/Conv_output_0", "y")
FLOAT = model_of(
    [
        node("Conv", "x w", REAL[0], pads=[1, 1, 1, 1]),
        node("Relu", REAL[0], REAL[1]),
        node("Conv", f"{REAL[1]} v", REAL[2]),
        node("Relu", REAL[2], "y"),
    ],
    X_SHAPES,
    ["y"],
    WEIGHTS,
)


def twin(kind: str) -> onnx.ModelProto:
    """Each tensor through a pair; the output is what the last pair gives back, as quantisers write it."""
    nodes, weights, fed = [], dict(WEIGHTS), {"x": "x"}
    for k, one in enumerate(FLOAT.graph.node):
        name = one.output[0]
        made = "y_raw" if name == "y" else name
        copy = onnx.NodeProto()
        copy.CopyFrom(one)
        copy.input[0], copy.output[0] = fed[one.input[0]], made
        back = "y" if name == "y" else f"{name}_DequantizeLinear_Output"
        weights |= {f"s{k}": np.array(0.02, np.float32), f"z{k}": np.array(-5 if kind == "int8" else 123, kind)}
        pair = (("QuantizeLinear", made, f"{name}_q"), ("DequantizeLinear", f"{name}_q", back))
        nodes += [copy, *(node(op, f"{read} s{k} z{k}", out) for op, read, out in pair)]
        fed[name] = back
    return model_of(nodes, X_SHAPES, ["y"], weights)


def codes(kind: str, faults: dict[str, Fault] | None = None) -> dict[str, Array]:
    """What a chip holds for each tensor of the float model, under that name."""
    made = run_target(twin(kind), X, faults=faults or {})
    return {name: made[f"{name}_q"] for name in REAL}


def options(folder: Path, held: dict[str, Array], kind: str = "int8", *, loose: str = "") -> Options:
    twin_path = write_model(folder / "twin", twin(kind))
    model, inputs = write_model(folder, FLOAT), write_dump(folder / "in.npz", X)
    dump = folder / "dump"
    if loose:
        dump.mkdir()
        for name, value in held.items():
            path = dump / f"{name.replace('/', '_')}.{loose}"
            value.tofile(path) if loose == "bin" else np.save(path, value)
    else:
        dump = write_dump(folder / "dump.npz", held)
    return Options(model=model, target_dump=dump, inputs=inputs, quantized_model=twin_path)


def judged(*given: object, **more: object) -> Result:
    return run(options(*given, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("loose", ["", "npy", "bin"])
def test_codes_under_the_float_models_names_are_the_twins(tmp_path: Path, kind: str, loose: str) -> None:
    result = judged(tmp_path, codes(kind), kind, loose=loose)
    assert result.verdict is Verdict.ALIGNED
    assert result.coverage is not None
    assert result.coverage.observed == len(REAL)
    assert any("integers under the names of real tensors" in said and "3 more" in said for said in result.warnings)


def test_signed_codes_of_an_unsigned_twin_count_from_the_other_end(tmp_path: Path) -> None:
    signed = {name: (value.astype(np.int16) - 128).astype(np.int8) for name, value in codes("uint8").items()}
    assert judged(tmp_path, signed, "uint8").verdict is Verdict.ALIGNED


@pytest.mark.parametrize("tensor", REAL)
def test_a_fault_in_codes_is_found_at_its_node(tmp_path: Path, tensor: str) -> None:
    def fault(y: Array) -> Array:
        y[:, 1] = np.clip(y[:, 1].astype(np.int32) + 40, -128, 127)
        return y

    result = judged(tmp_path, codes("int8", {f"{tensor}_q": fault}))
    assert result.verdict is Verdict.FAULT
    assert [c.region.output for c in result.culprits] == [f"{tensor}_q"]


def test_values_decide_and_not_the_name(tmp_path: Path) -> None:
    """Codes of another calibration do not fit: said, and nothing is called aligned."""
    held = {name: np.clip(value.astype(np.int32) // 3, -128, 127).astype(np.int8) for name, value in codes("int8").items()}
    asked = options(tmp_path, held)
    assert {row.status for row in match(asked).rows} <= {"unsupported"}
    assert run(asked).verdict is not Verdict.ALIGNED


def test_real_values_under_these_names_stay_real(tmp_path: Path) -> None:
    made = run_target(twin("int8"), X)
    held = {name: made["y_raw" if name == "y" else name] for name in REAL[:3]}
    result = judged(tmp_path, held)
    assert result.verdict is Verdict.ALIGNED
    assert not any("integers under" in said for said in result.warnings)


def test_an_entry_that_is_called_after_the_codes_stays_theirs() -> None:
    """Some tools strip endings, so that an entry bears both names; the real tensor has an entry of its own."""
    held = codes("uint8")["y"]
    found = Catalogue(Path(), (replace(entry("y_q", held), names=("y", "y_q")), entry("y", held.astype(np.float32))))
    assert with_codes(found, graph_of(twin("uint8"))) == (found, [])
