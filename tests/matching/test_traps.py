"""What healthy dumps do to mislead whoever compares them: one test a trap. None of them may lead to an accusation of an operator."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import convolutional, mixed, model_of, node, normal, run_target, scaled, store, write_dump, write_model

from bisect_align.dumps.catalogue import catalogue
from bisect_align.errors import DumpError
from bisect_align.result.match import MatchReport
from bisect_align.result.result import Kind, Result, Verdict
from bisect_align.session.match import match
from bisect_align.session.options import Options
from bisect_align.session.run import run

Array = NDArray[Any]
MIXED, ROWS = mixed(3), {"x": normal(52, 8, 24)}
CONV, IMAGE = convolutional(), {"x": normal(51, 1, 3, 10, 8)}
HARMLESS = {Verdict.ALIGNED, Verdict.UNDECIDED, Verdict.DUMP_SUSPECT}


@dataclass
class Desk:
    """A model and its inputs in a folder, and an empty dump to be filled."""

    folder: Path
    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def dump(self) -> Path:
        path = self.folder / "dump"
        path.mkdir(exist_ok=True)
        return path

    def save(self, values: Mapping[str, Array]) -> None:
        """Each value in an .npy of that name."""
        for name, value in values.items():
            with (self.dump / f"{name}.npy").open("wb") as file:
                np.save(file, value)

    def options(self, dump: Path | None = None, **more: Any) -> Options:
        model = write_model(self.folder, self.model)
        inputs = write_dump(self.folder / "in.npz", self.inputs)
        return Options(model=model, inputs=inputs, target_dump=dump or self.dump, **{**self.more, **more})

    def run(self, dump: Path | None = None, **more: Any) -> Result:
        return run(self.options(dump, **more))

    def match(self, dump: Path | None = None, **more: Any) -> MatchReport:
        return match(self.options(dump, **more))

    def homes(self, **more: Any) -> dict[str, str]:
        """Tensor -> its entry."""
        return {row.tensor: row.entry for row in self.match(**more).rows}


def without_inputs(values: Mapping[str, Array], inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {name: value for name, value in values.items() if name not in inputs}


def rows_desk(folder: Path, precision: str = "fp16") -> tuple[Desk, dict[str, Array]]:
    return Desk(folder, MIXED, ROWS), without_inputs(run_target(MIXED, ROWS, precision), ROWS)


def image_desk(folder: Path, precision: str = "fp16") -> tuple[Desk, dict[str, Array]]:
    return Desk(folder, CONV, IMAGE), without_inputs(run_target(CONV, IMAGE, precision), IMAGE)


def chain(*names: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Tanh and MatMul by turns, the tensors called as told."""
    nodes, weights, x = [], {}, "x"
    for k, name in enumerate(names):
        made = node("Tanh", "x", "t") if k % 2 == 0 else node("MatMul", f"x w{k}", "t")
        made.input[0], made.output[0], made.name = x, name, f"node{k}"
        if k % 2:
            weights[f"w{k}"] = normal(300 + k, 24, 24, scale=0.3)
        nodes.append(made)
        x = name
    model = model_of(nodes, {"x": (8, 24)}, weights=weights)
    return model, without_inputs(run_target(model, ROWS, "fp16"), ROWS)


# ---- names -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("names", "file"), [(("a/b", "a:b", "y"), "a_b"), (("x.1", "x_1", "y"), "x_1"), (("a//b", "a/b", "y"), "a_b")]
)
def test_two_tensors_one_file(tmp_path: Path, names: tuple[str, ...], file: str) -> None:
    """The later write has won; the file is nobody's by its name, and both are named."""
    model, values = chain(*names)
    desk = Desk(tmp_path, model, ROWS)
    desk.save({file: normal(9, 8, 24), "y": values["y"]})
    report = desk.match()
    assert f"{file}.npy" not in {row.entry for row in report.rows}
    said = {left.name: left.reason for left in report.colliding}[f"{file}.npy"]
    assert all(repr(name) in said for name in names[:2])
    for winner in names[:2]:
        desk.save({file: values[winner]})
        assert desk.homes().get(names[0] if winner == names[1] else names[1]) != f"{file}.npy"
        assert desk.run().verdict is Verdict.ALIGNED


@pytest.mark.parametrize("pair", [("Relu", "relu"), ("relu", "Relu"), ("a.", "a"), ("a", "a."), ("Tanh_1 ", "tanh_1")])
def test_names_that_differ_by_case_or_trailing_dots_only(tmp_path: Path, pair: tuple[str, str]) -> None:
    """Unpacked on a disk that knows no case: one file is left, under either name, with either value."""
    model, values = chain("u", "v", *pair, "w", "y")
    desk = Desk(tmp_path, model, ROWS)
    for name in pair:
        for held in pair:
            path = write_dump(tmp_path / "dump.npz", {**{n: values[n] for n in "uvwy"}, name: values[held]})
            homes = {row.tensor: row.entry for row in desk.match(path).rows}
            assert name not in (homes.get(one) for one in pair if one != held)
            assert desk.run(path).verdict is Verdict.ALIGNED
    assert desk.run(write_dump(tmp_path / "both.npz", values)).verdict is Verdict.ALIGNED


HOSTILE = [
    "a;b",
    "a:0",
    "a@b",
    "$a#!%",
    "schön/тензор",
    "x" * 300,
    "/etc/passwd",
    "../../up",
    "a..b",
    "..",
    " a b ",
    "a\\b",
    "-o",
    "a\nb",
]


def test_hostile_names(tmp_path: Path) -> None:
    """Separators, non-ASCII, over 255 bytes, absolute, upwards: whole names in a container, and nothing leaves the out folder."""
    model, values = chain(*HOSTILE)
    desk = Desk(tmp_path, model, ROWS)
    with (tmp_path / "dump.npz").open("wb") as file:
        np.savez(file, **values)  # type: ignore[arg-type]
    out = tmp_path / "deep" / "er" / "out"
    before = {p for p in tmp_path.rglob("*") if not p.is_relative_to(tmp_path / "deep")}
    result = desk.run(tmp_path / "dump.npz", out=out)
    assert result.verdict is Verdict.ALIGNED
    assert result.coverage is not None
    assert result.coverage.observed >= len(HOSTILE) - 2
    wrong = without_inputs(run_target(model, ROWS, "fp16", {"../../up": scaled(2.0)}), ROWS)
    with (tmp_path / "dump.npz").open("wb") as file:
        np.savez(file, **wrong)  # type: ignore[arg-type]
    result = desk.run(tmp_path / "dump.npz", out=out)
    assert [c.region.output for c in result.culprits] == ["../../up"]
    made = {p for p in tmp_path.rglob("*") if not p.is_relative_to(out)} - before
    assert {p.name for p in made} <= {"deep", "er", "model.onnx", "in.npz"}


def test_substring(tmp_path: Path) -> None:
    """conv1 is no part of conv10, relu is not relu_1."""
    model, values = chain("conv1", "conv10", "relu", "relu_1", "relu_10", "y")
    desk = Desk(tmp_path, model, ROWS)
    desk.save({"conv10": values["conv10"], "relu_1": values["relu_1"], "y": values["y"]})
    assert desk.homes() == {"conv10": "conv10.npy", "relu_1": "relu_1.npy", "y": "y.npy"}


def test_counters(tmp_path: Path) -> None:
    """Run counters and time stamps are no part of a name, whatever they are."""
    found = []
    for run_of, stamp in enumerate((1796042114887486, 1896042114887999)):
        folder = tmp_path / str(run_of)
        folder.mkdir()
        desk, values = rows_desk(folder)
        desk.save({f"Op.{name}.{k + run_of}.{7 * run_of}.{stamp + k}": v for k, (name, v) in enumerate(values.items())})
        found.append({tensor: entry.split(".")[1] for tensor, entry in desk.homes().items()})
        assert desk.run().verdict is Verdict.ALIGNED
    assert found[0] == found[1] == {name: name for name in values}


def test_output_index(tmp_path: Path) -> None:
    """The second output of a node is not the first, and a file of the node alone is the first."""
    nodes = [node("Split", "x", "s/a s/b", axis=1, num_outputs=2), node("Mul", "s/a s/b", "m"), node("Tanh", "m", "y")]
    model = model_of(nodes, {"x": (8, 24)})
    values = run_target(model, ROWS, "fp16")
    desk = Desk(tmp_path, model, ROWS)
    rest = {"m": values["m"], "y": values["y"]}
    desk.save({**rest, "n_s_a.0": values["s/a"], "n_s_a.1": values["s/b"]})
    assert desk.homes() == {"s/a": "n_s_a.0.npy", "s/b": "n_s_a.1.npy", "m": "m.npy", "y": "y.npy"}
    assert desk.run().verdict is Verdict.ALIGNED


# ---- what a file holds -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_fused_node_under_the_first_name(tmp_path: Path, precision: str) -> None:
    desk, values = image_desk(tmp_path, precision)
    desk.save({"c0": values["r0"], "c1": values["r1"], "p": values["p"]})
    assert desk.run(precision=precision).verdict is Verdict.ALIGNED
    assert desk.homes() == {"r0": "c0.npy", "r1": "c1.npy", "p": "p.npy"}


def test_fused_node_under_the_last_name_with_the_first_value(tmp_path: Path) -> None:
    """A quantised Relu that its zero point has made idle: its name is on the value before the clamp."""
    desk, values = image_desk(tmp_path)
    desk.save({"r0": values["n0"], "r1": values["n1"], "p": values["p"]})
    assert desk.run().verdict is Verdict.ALIGNED
    assert desk.homes() == {"n0": "r0.npy", "n1": "r1.npy", "p": "p.npy"}


@pytest.mark.parametrize("suffix", ["_int8", "_quantized", "_QuantizeLinear_Output"])
def test_twins_of_codes_and_floats(tmp_path: Path, suffix: str) -> None:
    desk, values = rows_desk(tmp_path, "int8")
    codes = {f"{n}{suffix}": np.rint(v / np.abs(v).max() * 127).astype(np.int8) for n, v in values.items()}
    desk.save({**values, **codes})
    assert desk.homes() == {n: f"{n}.npy" for n in values}
    assert desk.run().verdict is Verdict.ALIGNED


@pytest.mark.parametrize("suffix", ["_f32", "_native", "_DequantizeLinear_Output", "_splitncnn_0"])
def test_twins_of_floats(tmp_path: Path, suffix: str) -> None:
    desk, values = rows_desk(tmp_path)
    desk.save({**values, **{f"{n}{suffix}": v for n, v in values.items()}})
    result = desk.run()
    assert result.verdict is Verdict.ALIGNED
    assert result.coverage is not None
    assert result.coverage.observed == len(values)


def test_constants_and_identity(tmp_path: Path) -> None:
    """What a compiler removes is not there, weights that it dumps too are no activations, integers come back as floats."""
    nodes = [
        node("Identity", "x", "i"),
        node("Dropout", "i", "d"),
        node("MatMul", "d w", "m"),
        node("Shape", "m", "s"),
        node("Reshape", "m s", "r"),
        node("Constant", "", "k", value=onnx.numpy_helper.from_array(normal(3, 24))),
        node("Add", "r k", "a"),
        node("ArgMax", "a", "g", axis=1),
        node("Tanh", "a", "y"),
    ]
    model = model_of(nodes, {"x": (8, 24)}, outputs=["y", "g"], weights={"w": normal(4, 24, 24, scale=0.3)})
    values = run_target(model, ROWS, "fp16")
    desk = Desk(tmp_path, model, ROWS)
    kept = {n: values[n] for n in "may"} | {n: values[n].astype(np.float32) for n in "sg"} | {"w": normal(4, 24, 24, scale=0.3)}
    desk.save(kept)
    result = desk.run()
    assert result.verdict is Verdict.ALIGNED
    assert desk.homes().keys() >= {"m", "a", "y", "g"}


@pytest.mark.parametrize(("tensor", "holds"), [("b0", "m1"), ("m1", "g2"), ("g0", "b2"), ("t0", "g0")])
def test_in_place_reuse(tmp_path: Path, tensor: str, holds: str) -> None:
    """The file was written late: its buffer holds a later tensor's value. The operator is not at fault."""
    desk, values = rows_desk(tmp_path)
    desk.save({**values, tensor: values[holds]})
    result = desk.run()
    assert result.verdict in HARMLESS
    assert result.culprits == ()
    assert {one.tensor for one in result.suspected_entries} <= {tensor}


# ---- no names --------------------------------------------------------------------------------------------------------------
def classifier() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Three convolutions, then ten classes: an output smaller than what is missed elsewhere."""
    nodes, weights, x, channels = [], {}, "x", 3
    for k in range(3):
        weights[f"w{k}"] = normal(40 + k, 8, channels, 3, 3, scale=0.25)
        nodes += [node("Conv", f"{x} w{k}", f"c{k}", pads=[1, 1, 1, 1]), node("Relu", f"c{k}", f"r{k}")]
        x, channels = f"r{k}", 8
    weights["m"] = normal(47, 8, 10, scale=0.5)
    nodes += [node("GlobalAveragePool", x, "p"), node("Flatten", "p", "f"), node("MatMul", "f m", "g"), node("Softmax", "g", "y")]
    return model_of(nodes, {"x": (1, 3, 12, 10)}, weights=weights), {"x": normal(48, 1, 3, 12, 10)}


def test_a_wrong_output_without_a_name_is_not_aligned(tmp_path: Path) -> None:
    """Nothing tells that the entry is the output but that both are left over."""
    model, inputs = classifier()
    values = without_inputs(run_target(model, inputs, "fp32", {"y": lambda y: 1 / (1 + np.exp(-3 * y))}), inputs)
    desk = Desk(tmp_path, model, inputs)
    desk.save({f"{k:03}": value for k, value in enumerate(values.values())})
    assert desk.run().verdict in {Verdict.UNDECIDED, Verdict.FAULT}


def test_few_entries_without_names_and_a_fault_between_them(tmp_path: Path) -> None:
    """An output that only its value has placed, beyond noise: it acquits nobody."""
    model, inputs = classifier()
    values = run_target(model, inputs, "fp32", {"c1": lambda y: np.roll(y, 2, axis=3)})
    desk = Desk(tmp_path, model, inputs)
    desk.save({f"{k:03}": values[name] for k, name in enumerate(("r0", "r1", "r2", "y"))})
    assert desk.run(precision="fp32").verdict in {Verdict.UNDECIDED, Verdict.FAULT}


# ---- layout ----------------------------------------------------------------------------------------------------------------
def square() -> tuple[onnx.ModelProto, dict[str, Array], dict[str, Array]]:
    """Six convolutions in which channels, height and width are equal."""
    nodes, weights, x = [], {}, "x"
    for k in range(6):
        weights[f"w{k}"] = normal(30 + k, 6, 6, 3, 3, scale=0.2)
        nodes += [node("Conv", f"{x} w{k}", f"c{k}", pads=[1, 1, 1, 1]), node("Relu", f"c{k}", f"r{k}")]
        x = f"r{k}"
    model, inputs = model_of(nodes, {"x": (1, 6, 6, 6)}, weights=weights), {"x": normal(39, 1, 6, 6, 6)}
    return model, inputs, without_inputs(run_target(model, inputs, "fp16"), inputs)


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 1, 2, 3)], ids=["NHWC", "NCHW"])
def test_layout_square(tmp_path: Path, axes: tuple[int, ...]) -> None:
    """No shape shows the layout; the dump as a whole does."""
    model, inputs, values = square()
    desk = Desk(tmp_path, model, inputs)
    desk.save({n: v.transpose(axes) for n, v in values.items()})
    assert desk.run().verdict is Verdict.ALIGNED
    assert {row.fix for row in desk.match().rows} == {"id" if axes[1] == 1 else "CL"}


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 1, 2, 3)], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("tensor", ["c0", "r0", "c1", "c3", "r4", "c5"])
def test_layout_square_with_a_fault(tmp_path: Path, tensor: str, axes: tuple[int, ...]) -> None:
    """An operator at fault, and the first one above all, does not keep the dump from showing its layout."""
    model, inputs, _ = square()
    values = run_target(model, inputs, "fp16", {tensor: lambda y: np.roll(y, 1, axis=3)})
    desk = Desk(tmp_path, model, inputs)
    desk.save({n: v.transpose(axes) for n, v in without_inputs(values, inputs).items()})
    result = desk.run()
    assert result.verdict is Verdict.FAULT
    assert [c.region.output for c in result.culprits] == [tensor]
    assert {row.fix for row in desk.match().rows} == {"id" if axes[1] == 1 else "CL"}


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (0, 2, 1, 3)])
@pytest.mark.parametrize("tensor", ["c0", "r0", "c3", "r4", "c5"])
def test_a_wrong_transposition_is_no_layout(tmp_path: Path, tensor: str, perm: tuple[int, ...]) -> None:
    """Where no shape shows the layout, an operator that mixes axes up is still found: what follows was computed from it."""
    model, inputs, _ = square()
    values = run_target(model, inputs, "fp16", {tensor: lambda y: y.transpose(perm)})
    desk = Desk(tmp_path, model, inputs)
    desk.save(without_inputs(values, inputs))
    result = desk.run()
    assert result.verdict is Verdict.FAULT
    assert [c.region.output for c in result.culprits] == [tensor]


@pytest.mark.parametrize("length", [9, 12])
def test_layout_NLC_NCL(tmp_path: Path, length: int) -> None:
    nodes, weights, x = [], {}, "x"
    for k in range(5):
        weights[f"w{k}"] = normal(40 + k, 12, 12, 3, scale=0.2)
        nodes += [node("Conv", f"{x} w{k}", f"c{k}", pads=[1, 1]), node("Tanh", f"c{k}", f"t{k}")]
        x = f"t{k}"
    model, inputs = model_of(nodes, {"x": (1, 12, length)}, weights=weights), {"x": normal(49, 1, 12, length)}
    values = without_inputs(run_target(model, inputs, "fp16"), inputs)
    desk = Desk(tmp_path, model, inputs)
    desk.save({n: v.transpose(0, 2, 1) for n, v in values.items()})
    assert desk.run().verdict is Verdict.ALIGNED


@pytest.mark.parametrize("fill", [0.0, 7.0, np.nan])
@pytest.mark.parametrize("layout", ["NC1HWC0", "channels", "channels last"])
def test_padding(tmp_path: Path, layout: str, fill: float) -> None:
    """What stands behind the last channel may be anything."""

    def padded(v: Array) -> Array:
        if v.ndim != 4:
            return v
        wide = np.full((v.shape[0], 16, *v.shape[2:]), fill, v.dtype)
        wide[:, : v.shape[1]] = v
        if layout == "channels":
            return wide
        last = wide.transpose(0, 2, 3, 1)
        return last[:, None] if layout == "NC1HWC0" else last

    desk, values = image_desk(tmp_path)
    desk.save({n: padded(v) for n, v in values.items()})
    result = desk.run()
    assert result.verdict is Verdict.ALIGNED
    assert result.coverage is not None
    assert result.coverage.observed == len(values)


def test_fractal_matrices(tmp_path: Path) -> None:
    """A matrix unit's tiles of 16 by 16, padded with what was there before."""

    def tiles(v: Array) -> Array:
        rows, columns = v.shape
        padded = np.full((-(-rows // 16) * 16, -(-columns // 16) * 16), 3, v.dtype)
        padded[:rows, :columns] = v
        return padded.reshape(padded.shape[0] // 16, 16, padded.shape[1] // 16, 16).transpose(2, 0, 1, 3)

    desk, values = rows_desk(tmp_path)
    desk.save({n: tiles(v) for n, v in values.items()})
    assert desk.run().verdict is Verdict.ALIGNED
    assert {row.fix for row in desk.match().rows} == {"FRACTAL_NZ"}


def test_batch_dropped(tmp_path: Path) -> None:
    """And a scalar that comes as one element."""
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("ReduceMean", "r", "s", keepdims=0), node("Mul", "r s", "y")]
    model = model_of(nodes, {"x": (1, 3, 10, 8)}, weights={"w": normal(61, 4, 3, 3, 3, scale=0.3)})
    values = run_target(model, IMAGE, "fp16")
    desk = Desk(tmp_path, model, IMAGE)
    desk.save({**{n: values[n][0] for n in "cry"}, "s": values["s"].reshape(1)})
    assert desk.run().verdict is Verdict.ALIGNED
    assert desk.homes().keys() == set("crsy")


def test_batch_folded(tmp_path: Path) -> None:
    """The samples of a batch side by side along the height."""
    inputs = {"x": normal(62, 2, 3, 10, 8)}
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("Conv", "r v", "d"), node("Tanh", "d", "y")]
    weights = {"w": normal(63, 4, 3, 3, 3, scale=0.3), "v": normal(64, 5, 4, 3, 3, scale=0.3)}
    model = model_of(nodes, {"x": (2, 3, 10, 8)}, weights=weights)
    values = without_inputs(run_target(model, inputs, "fp16"), inputs)
    desk = Desk(tmp_path, model, inputs)
    desk.save({n: np.concatenate(list(v), axis=1)[None] for n, v in values.items()})
    assert desk.run().verdict is Verdict.ALIGNED
    assert {row.fix for row in desk.match().rows} == {"fold2"}


# ---- which run -------------------------------------------------------------------------------------------------------------
def test_Result_0_and_Result_1(tmp_path: Path) -> None:
    """The samples of an input list: the wrong one is told by its input, not blamed on the first layer."""
    desk = Desk(tmp_path, MIXED, ROWS)
    others = {"x": normal(77, 8, 24)}
    for k, inputs in enumerate((ROWS, others)):
        folder = desk.dump / f"Result_{k}"
        folder.mkdir()
        for name, value in run_target(MIXED, inputs, "fp16").items():
            np.save(folder / f"{name}.npy", value)
    assert desk.run().verdict is Verdict.ALIGNED
    assert desk.run(sample=1).verdict is Verdict.INPUT_MISMATCH
    assert Desk(tmp_path, MIXED, others).run(sample=1).verdict is Verdict.ALIGNED


def test_wrong_input(tmp_path: Path) -> None:
    desk = Desk(tmp_path, MIXED, ROWS)
    desk.save(run_target(MIXED, {"x": ROWS["x"] / 0.225 - 0.485}, "fp16"))
    result = desk.run()
    assert result.verdict is Verdict.INPUT_MISMATCH
    assert result.culprits == ()


def test_wrong_input_that_nothing_shows(tmp_path: Path) -> None:
    """Without a copy of the input in the dump, what the first layer follows from tells a normalisation; another sample looks like a
    wrong first layer, and the report says so."""
    desk = Desk(tmp_path, MIXED, ROWS)
    desk.save(without_inputs(run_target(MIXED, {"x": ROWS["x"] / 0.225 - 0.485}, "fp16"), ROWS))
    result = desk.run()
    assert result.verdict is Verdict.INPUT_MISMATCH
    assert "'m0' follows from 'x' as 4.44 * x - 0.485" in result.summary
    desk.save(without_inputs(run_target(MIXED, {"x": normal(77, 8, 24)}, "fp16"), ROWS))
    result = desk.run()
    assert result.verdict is Verdict.FAULT
    assert "'x'" in " ".join(result.next)
    later = run_target(MIXED, ROWS, "fp16", {"b1": scaled(2.0)})
    desk.save(without_inputs(later, ROWS))
    assert "'x'" not in " ".join(desk.run().next)
    desk.save(run_target(MIXED, ROWS, "fp16", {"m0": scaled(2.0)}))
    assert "'x'" not in " ".join(desk.run().next)


def test_leftovers(tmp_path: Path) -> None:
    """Files of another model, and an older run beside the new one."""
    desk, values = rows_desk(tmp_path)
    old = without_inputs(run_target(MIXED, {"x": normal(5, 8, 24)}, "fp16"), ROWS)
    for stamp, held in (("20260101120000", old), ("20260102120000", values)):
        folder = desk.dump / stamp
        folder.mkdir()
        for name, value in held.items():
            np.save(folder / f"{name}.npy", value)
        np.save(folder / "features.18.npy", normal(6, 1, 3, 7, 7))
        np.save(folder / "classifier.npy", normal(7, 8, 24))
    result = desk.run()
    assert result.verdict is Verdict.ALIGNED
    assert result.coverage is not None
    assert all("20260101120000" not in (row.entry or "") for row in result.tensors)


@pytest.mark.parametrize("ending", ["npy", "bin"])
def test_half_dump(tmp_path: Path, ending: str) -> None:
    """The disk was full: the last file is cut, one is empty, the rest of the graph is missing."""
    desk, values = rows_desk(tmp_path)
    for name in ("m0", "b0", "t0", "g0", "m1"):
        path = desk.dump / f"{name}.{ending}"
        if ending == "npy":
            np.save(path, values[name])
        else:
            values[name].tofile(path)
    cut, empty = desk.dump / f"m1.{ending}", desk.dump / f"b1.{ending}"
    cut.write_bytes(cut.read_bytes()[:-100])
    empty.write_bytes(b"")
    result = desk.run()
    assert result.verdict in {Verdict.ALIGNED, Verdict.UNDECIDED}
    rows = {row.name: row for row in result.tensors}
    assert all(rows[n].entry is None for n in ("m1", "b1", "t1"))
    assert "m1" in rows
    assert rows["m1"].reason != rows["t1"].reason == "not in the dump"


# ---- numbers ---------------------------------------------------------------------------------------------------------------
def test_dtype_by_size(tmp_path: Path) -> None:
    """Two bytes an element without a header are float16 or bfloat16: not guessed, and the way out is said."""
    desk, values = rows_desk(tmp_path)
    desk.save({n: v for n, v in values.items() if n != "b1"})
    values["b1"].astype(ml_dtypes.bfloat16).tofile(desk.dump / "b1.raw")
    result = desk.run()
    assert result.verdict in {Verdict.ALIGNED, Verdict.UNDECIDED}
    row = next(row for row in result.tensors if row.name == "b1")
    assert row.entry is None
    assert "float16 or bfloat16" in row.reason
    assert "manifest" in row.reason


def test_big_endian(tmp_path: Path) -> None:
    desk, values = rows_desk(tmp_path)
    desk.save({n: v.astype(">f4") for n, v in values.items()})
    assert desk.run().verdict is Verdict.ALIGNED


@pytest.mark.parametrize("form", ["%.6f", "%.4f", "%.6g"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-5, 1e-7])
def test_text_precision(tmp_path: Path, form: str, scale: float) -> None:
    """Printed with few decimals, small values keep few digits: that is the text's doing, not the operator's."""
    nodes = [
        node("MatMul", "x w", "a"),
        node("Mul", "a small", "b"),
        node("Tanh", "b", "c"),
        node("MatMul", "c v", "d"),
        node("Mul", "d big", "e"),
        node("Sigmoid", "e", "y"),
    ]
    weights = {
        "w": normal(71, 24, 24, scale=0.2),
        "v": normal(72, 24, 24, scale=0.2),
        "small": np.float32(scale),
        "big": np.float32(1 / scale),
    }
    model = model_of(nodes, {"x": (8, 24)}, weights=weights)
    values = without_inputs(run_target(model, ROWS, "fp32"), ROWS)
    desk = Desk(tmp_path, model, ROWS)
    for name, value in values.items():
        np.savetxt(desk.dump / f"{name}.txt", value.ravel(), fmt=form)
    result = desk.run()
    assert result.culprits == ()
    assert result.verdict in {Verdict.ALIGNED, Verdict.UNDECIDED}


def codes_of(value: Array) -> tuple[Array, float, int]:
    low, high = min(float(value.min()), 0.0), max(float(value.max()), 0.0)
    scale = (high - low) / 255
    zero = round(-low / scale)
    return np.clip(np.rint(value / scale) + zero, 0, 255), scale, zero


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("which", ["one", "all"])
def test_raw_int8_against_float(tmp_path: Path, dtype: Any, which: str) -> None:
    """Codes that nobody has dequantised are no fault, whatever type they come in."""
    desk, values = rows_desk(tmp_path, "int8")
    chosen = {"b1"} if which == "one" else set(values) - {"g2"}
    desk.save({n: codes_of(v)[0].astype(dtype) if n in chosen else v for n, v in values.items()})
    result = desk.run()
    assert result.culprits == ()
    assert result.verdict in {Verdict.ALIGNED, Verdict.UNDECIDED}
    row = next(row for row in result.tensors if row.name == "b1")
    assert "scale" in row.reason


@pytest.mark.parametrize("key", ["zero_point", "offset"])
def test_offset_sign(tmp_path: Path, key: str) -> None:
    """real = (q - zero_point) * scale, or (q + offset) * scale: the file's key tells which."""
    desk, values = rows_desk(tmp_path, "int8")
    tensors = {}
    for name, value in values.items():
        codes, scale, zero = codes_of(value)
        desk.save({name: codes.astype(np.uint8)})
        tensors[name] = f'"{name}": {{"scale": {scale}, "{key}": {zero if key == "zero_point" else -zero}}}'
    scales = tmp_path / "scales.json"
    scales.write_text(f'{{"tensors": {{{", ".join(tensors.values())}}}}}')
    result = desk.run(quant_params=scales)
    assert result.verdict is Verdict.ALIGNED
    assert result.coverage is not None
    assert result.coverage.observed == len(values)


def test_saturated_and_NaN(tmp_path: Path) -> None:
    """NaN and Inf where the golden has them too are agreement; fp16 that overflows is said in kind."""
    nodes = [node("Log", "x", "l"), node("Exp", "x big", "e"), node("Tanh", "l", "y")]
    nodes[1] = node("Div", "x zero", "e")
    model = model_of(nodes, {"x": (8, 24)}, outputs=("y", "e"), weights={"zero": np.zeros(24, np.float32)})
    values = without_inputs(run_target(model, ROWS, "fp16"), ROWS)
    assert np.isnan(values["l"]).any()
    assert np.isinf(values["e"]).all()
    desk = Desk(tmp_path, model, ROWS)
    desk.save(values)
    assert desk.run().verdict is Verdict.ALIGNED

    wide = [node("MatMul", "x w", "m"), node("Mul", "m m", "q"), node("Tanh", "q", "y")]
    over = model_of(wide, {"x": (8, 24)}, weights={"w": normal(81, 24, 24, scale=300)})
    overflown = without_inputs(run_target(over, ROWS, "fp16"), ROWS)
    assert np.isinf(overflown["q"]).any()
    folder = tmp_path / "over"
    folder.mkdir()
    other = Desk(folder, over, ROWS)
    other.save(overflown)
    (one,) = other.run().culprits
    assert one.region.output == "q"
    assert one.kind in {Kind.NON_FINITE, Kind.PRECISION_LOSS}


# ---- files -----------------------------------------------------------------------------------------------------------------
def as_text(value: Array) -> bytes:
    return b"".join(b"%.9g\n" % float(v) for v in value.ravel())


def as_npy(value: Array) -> bytes:
    import io

    stream = io.BytesIO()
    np.save(stream, value)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("ending", "written"),
    [
        (".tensor", as_text),
        (".ieb", as_text),
        ("", as_text),
        ("", as_npy),
        (".bin", as_npy),
        (".txt", lambda v: b"\xef\xbb\xbf" + as_text(v).replace(b"\n", b"\r\n")),
        (".data", lambda v: struct.pack(f"<{v.size}f", *v.ravel())),
    ],
)
def test_content_is_sniffed(tmp_path: Path, ending: str, written: Callable[[Array], bytes]) -> None:
    """An ending promises nothing: texts under binary names, .npy without one, a byte order mark and CRLF."""
    desk, values = rows_desk(tmp_path)
    for name, value in values.items():
        (desk.dump / f"{name}{ending}").write_bytes(written(value))
    result = desk.run()
    assert result.verdict is Verdict.ALIGNED
    assert result.coverage is not None
    assert result.coverage.observed == len(values)


def test_pickle_is_refused(tmp_path: Path) -> None:
    desk, values = rows_desk(tmp_path)
    path = tmp_path / "dump.npz"
    np.savez(path, **{n: v for n, v in values.items() if n != "b1"}, b1=np.array([values["b1"], None], object))  # type: ignore[arg-type]
    result = desk.run(path)
    assert result.verdict is Verdict.ALIGNED
    row = next(row for row in result.tensors if row.name == "b1")
    assert "pickle" in row.reason
    only = tmp_path / "only.npy"
    np.save(only, np.array([None], object), allow_pickle=True)
    with pytest.raises(DumpError, match="pickle"):
        catalogue(only)


def test_int8_levels_are_no_coarse_fault(tmp_path: Path) -> None:
    """A dequantised run is coarse everywhere, which is its precision."""
    rng = np.random.default_rng(0)
    desk, values = rows_desk(tmp_path)
    desk.save({n: store(v, "int8", rng) for n, v in run_target(MIXED, ROWS, "int8").items() if n != "x"})
    assert desk.run().verdict is Verdict.ALIGNED
    assert values
