"""A clumsy or hostile user: what cannot be done is one line that says what, where and what to try; all else goes on.

Each trouble exits with 2, shows no traceback and leaves no half-written file.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bisect_align.cli.main import main
from bisect_align.golden.segments import SegmentEngine
from bisect_align.model.load import load
from bisect_align.result import files

RNG = np.random.default_rng(0)
W = RNG.normal(size=(6, 5)).astype(np.float32)
B = RNG.normal(size=5).astype(np.float32)
X = RNG.normal(size=(3, 6)).astype(np.float32)
NAMES = ("mm", "add", "act", "y")
ESC = "\x1b"

Edit = Callable[[onnx.ModelProto], None]


def net(middle: str = "add", *, opset: int = 17) -> onnx.ModelProto:
    """Softmax(Tanh(x W + b)); `middle` names the sum."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["mm"], "fc"),
        helper.make_node("Add", ["mm", "b"], [middle], "bias"),
        helper.make_node("Tanh", [middle], ["act"], "tanh"),
        helper.make_node("Softmax", ["act"], ["y"], "soft", axis=-1),
    ]
    return model_of(nodes, {"x": [3, 6]}, {"y": [3, 5]}, {"W": W, "b": B}, opset=opset)


def model_of(nodes: Any, inputs: Any, outputs: Any, weights: Any, *, opset: int = 17) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def computed(model: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    graph = load(model).graph
    return dict(SegmentEngine(graph).stream(feeds, graph.tensors))


@dataclass(frozen=True)
class Seen:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Desk:
    """A folder with model.onnx, inputs.npz and dump/, and the command run in it."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str, model: str = "model.onnx", dump: str = "dump") -> Seen:
        code = main([model, "--target-dump", dump, *words])
        shown = self.capsys.readouterr()
        return Seen(code, shown.out, shown.err)

    def refused(self, *words: str, model: str = "model.onnx", dump: str = "dump") -> str:
        """The one line of a refusal; whatever stood in the output folder before stands there still."""
        before = self.left()
        seen = self.run(*words, model=model, dump=dump)
        assert (seen.code, seen.out) == (2, "")
        assert seen.err.count("\n") == 1
        assert seen.err.startswith("error: ")
        assert "Traceback" not in seen.err
        after = self.left()
        assert not [name for name in after if name not in ("result.json", "tensors.csv")]
        if after != before:  # a run that had begun says that it did not end
            held = json.loads(after["result.json"])
            assert (held["complete"], held["verdict"]) == (False, None)
        return seen.err

    def result(self) -> Any:
        return files.read(self.folder / "bisect-align-out")

    def left(self) -> dict[str, bytes]:
        out = self.folder / "bisect-align-out"
        return {path.name: path.read_bytes() for path in out.iterdir()} if out.is_dir() else {}

    def file(self, name: str, content: bytes | str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    def npy(self, name: str, value: Any) -> None:
        np.save(self.folder / "dump" / f"{name}.npy", value)

    def model(self, name: str, edit: Edit) -> str:
        model = net()
        edit(model)
        return self.file(name, model.SerializeToString())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump").mkdir()
    return furnished(Desk(tmp_path, capsys), net(), {"x": X})


def furnished(desk: Desk, model: onnx.ModelProto, feeds: dict[str, Any]) -> Desk:
    """The desk with another model and what a healthy target makes of it."""
    for old in (desk.folder / "dump").iterdir():
        old.unlink()
    onnx.save(model, desk.folder / "model.onnx")
    np.savez(desk.folder / "inputs.npz", **feeds)
    for name, value in computed(desk.folder / "model.onnx", feeds).items():
        desk.npy(name, value)
    return desk


def test_the_desk_is_in_order(desk: Desk) -> None:
    seen = desk.run()
    assert (seen.code, seen.err) == (0, "")
    assert desk.result().verdict == "aligned"


# --- the model ----------------------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_there(desk: Desk) -> None:
    assert desk.refused(model="nope.onnx") == "error: nope.onnx: no such model file (check the path)\n"


def test_a_folder_as_model_names_the_file_in_it(desk: Desk) -> None:
    assert "is a folder, not a model (name the file in it: model.onnx)" in desk.refused(model=".")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "the model file is empty"),
        (b"hello world\n", "is no ONNX model"),
        (bytes(100), "is no ONNX model"),
        (net().SerializeToString()[:100], "truncated"),
        (net().SerializeToString()[:-1], "truncated"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b'{"a": 1}', "text file"),
    ],
)
def test_a_file_that_is_no_model(desk: Desk, content: bytes, part: str) -> None:
    line = desk.refused(model=desk.file("m.onnx", content))
    assert line.startswith("error: m.onnx: ")
    assert part in line


def test_a_pipe_is_not_waited_for(desk: Desk) -> None:
    os.mkfifo(desk.folder / "pipe")
    assert "no regular file" in desk.refused(model="pipe")
    assert "neither a folder nor a regular file" in desk.refused(dump="pipe")


def external(location: str, **more: str) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        weight = model.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            entry = weight.external_data.add()
            entry.key, entry.value = key, value

    return edit


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (external("missing.bin"), "'missing.bin' is missing"),
        (external("short.bin"), "does not hold 120 bytes"),
        (external("../outside.bin"), "leads out of the model's folder"),
        (external("/etc/passwd"), "is not a relative path"),
        (external("link.bin"), "leads out of the model's folder"),
        (external(""), "is not a relative path"),
        (external("a\0b"), "cannot be reached"),
        (external("x" * 5000), "cannot be reached"),
        (external("whole.bin", offset="x"), "is no number"),
        (external("whole.bin", length=str(10**15)), "does not hold 120 bytes"),
    ],
)
def test_external_data_that_is_missing_or_elsewhere(desk: Desk, edit: Edit, part: str) -> None:
    inside = desk.folder / "sub"
    desk.file("outside.bin", W.tobytes())
    desk.file("sub/short.bin", b"1234")
    desk.file("sub/whole.bin", W.tobytes())
    (inside / "link.bin").symlink_to(desk.folder / "outside.bin")
    line = desk.refused(model=desk.model("sub/m.onnx", edit))
    assert line.startswith("error: sub/m.onnx: weight 'W': ")
    assert part in line
    assert len(line) < 500


def custom(model: onnx.ModelProto) -> None:
    model.graph.node[2].domain, model.graph.node[2].op_type = "com.acme", "FancyTanh"
    model.opset_import.append(helper.make_opsetid("com.acme", 1))


def misspelt(model: onnx.ModelProto) -> None:
    model.graph.node[2].op_type = "Tahn"


def of_tomorrow(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 99


@pytest.mark.parametrize(
    ("edit", "parts"),
    [
        (custom, ("node 'tanh' (com.acme.FancyTanh)", "not a registered function/op", "custom operator")),
        (misspelt, ("node 'tanh' (Tahn)", "No Op registered for Tahn", "misspelt")),
        (of_tomorrow, ("Opset 99", "older opset")),
    ],
)
def test_an_operator_that_onnx_runtime_does_not_know(desk: Desk, edit: Edit, parts: tuple[str, ...]) -> None:
    line = desk.refused(model=desk.model("m.onnx", edit))
    assert all(part in line for part in ("ONNX Runtime", *parts))
    assert len(line) < 600
    assert not desk.result().complete


def dangling(model: onnx.ModelProto) -> None:
    model.graph.node[2].input[0] = "nothing"


def cyclic(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "y"


def twice(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = "mm"


def short_weight(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].raw_data = b"123"


def without_nodes(model: onnx.ModelProto) -> None:
    del model.graph.node[:]
    model.graph.output[0].name = "x"


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (dangling, "reads tensor 'nothing', which no node makes"),
        (cyclic, "cycle"),
        (twice, "made twice"),
        (short_weight, "error: weight 'W': its values do not fit dims [6, 5]"),
        (without_nodes, "computes nothing"),
    ],
)
def test_a_graph_that_is_none(desk: Desk, edit: Edit, part: str) -> None:
    assert part in desk.refused(model=desk.model("m.onnx", edit))


# --- the dump -----------------------------------------------------------------------------------------------------------------


def test_a_dump_that_is_not_there_or_holds_nothing(desk: Desk) -> None:
    assert "nodump: cannot be read: no such file" in desk.refused(dump="nodump")
    (desk.folder / "empty").mkdir()
    assert "empty: is empty (a dump is a folder" in desk.refused(dump="empty")
    desk.file("logs/run.log", "started\n")
    desk.file("logs/notes.txt", "it failed\n")
    assert "logs: holds no tensors" in desk.refused(dump="logs")
    assert "holds no tensors" in desk.refused(dump="model.onnx")


def test_a_dump_of_another_model_shows_the_nearest_names(desk: Desk) -> None:
    (desk.folder / "other").mkdir()
    for name in ("layer_mm", "actt", "zzz"):
        np.save(desk.folder / "other" / f"{name}.npy", np.zeros((7, 9), np.float32))
    line = desk.refused(dump="other")
    assert "'actt' ~ 'act'" in line
    assert "--map" in line


def test_a_dump_whose_shapes_are_all_others(desk: Desk) -> None:
    for name in NAMES:
        desk.npy(name, np.zeros((7, 9), np.float32))
    assert "(7, 9)" in desk.refused()


def test_a_dump_may_be_a_link_and_hold_links(desk: Desk) -> None:
    (desk.folder / "link").symlink_to("dump")
    (desk.folder / "dump" / "back").symlink_to(".")
    (desk.folder / "dump" / "dead.npy").symlink_to("nowhere")
    os.mkfifo(desk.folder / "dump" / "pipe.npy")
    assert desk.run(dump="link").code == 0
    (desk.folder / "loop").symlink_to("loop")
    assert "symbolic links" in desk.refused(dump="loop")


def test_a_folder_whose_name_is_no_text(desk: Desk) -> None:
    strange = os.fsdecode(b"dump\xff")
    (desk.folder / "dump").rename(desk.folder / strange)
    (desk.folder / strange / "act.npy").rename(desk.folder / strange / os.fsdecode(b"act\xff.npy"))
    seen = desk.run(dump=strange)
    assert (seen.code, seen.err) == (0, "")
    assert "dump\\udcff" in desk.result().target.dump
    assert "dump\\udcff2: cannot be read" in desk.refused(dump=strange + "2")


def lying(shape: object, descr: object = "<f4", body: bytes = bytes(60)) -> bytes:
    """An .npy whose header says what it likes."""
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def saved(value: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value)
    return stream.getvalue()


DAMAGED = {
    "empty": (b"", "is empty"),
    "text": (b"hello", "does not begin like an .npy"),
    "truncated": (saved(np.zeros((3, 5), np.float32))[:-7], "holds 53 bytes of values, but float32 [3, 5] takes 60"),
    "10^12 elements": (lying((10**12,)), "takes 4000000000000"),
    "2^80 elements": (lying((2**40, 2**40)), "larger than any file"),
    "negative": (lying((-1, 5)), "no list of sizes"),
    "pickle": (pickle.dumps([1]), "does not begin like an .npy"),
    "objects": (saved(np.array([1, {}], dtype=object)), "never loaded"),
    "record": (lying((3, 5), [("a", "<f4")]), "not a plain one"),
    "no header": (b"\x93NUMPY\x01\x00\xff\xff{", "header"),
    "nested": (b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000, "damaged"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_one_unknown_tensor(desk: Desk, kind: str) -> None:
    content, reason = DAMAGED[kind]
    desk.file("dump/act.npy", content)
    seen = desk.run()
    assert (seen.code, seen.err) == (0, "")
    result = desk.result()
    states = {row.name: row.state for row in result.tensors}
    assert states == {"mm": "GOOD", "add": "GOOD", "act": "UNKNOWN", "y": "GOOD"}
    (row,) = (row for row in result.tensors if row.name == "act")
    assert reason in row.reason
    assert "act.npy" in row.reason
    assert reason in result.coverage.unreadable[0]


def test_where_all_files_are_damaged_the_first_is_named(desk: Desk) -> None:
    for name in NAMES:
        desk.file(f"dump/{name}.npy", b"x")
    assert "act.npy does not begin like an .npy file (and 3 more files)" in desk.refused()


def test_a_file_that_vanishes_after_the_listing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from bisect_align.dumps.catalogue import catalogue as listed

    def vanishing(*given: Any, **more: Any) -> Any:
        found = listed(*given, **more)
        (desk.folder / "dump" / "act.npy").unlink()
        return found

    monkeypatch.setattr("bisect_align.session.case.catalogue", vanishing)
    seen = desk.run()
    assert (seen.code, seen.err) == (0, "")
    (row,) = (row for row in desk.result().tensors if row.name == "act")
    assert row.state == "UNKNOWN"
    assert "no such file" in row.reason


@pytest.mark.parametrize("dtype", [">f4", "<f4"])
def test_byte_order_and_column_order_are_only_forms(desk: Desk, dtype: str) -> None:
    desk.npy("act", np.asfortranarray(np.load(desk.folder / "dump" / "act.npy").astype(dtype)))
    assert desk.run().code == 0
    assert {row.state for row in desk.result().tensors} == {"GOOD"}


def zipped(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_an_npz_that_says_less_than_it_holds_is_not_unpacked(desk: Desk) -> None:
    members = {f"{name}.npy": (desk.folder / "dump" / f"{name}.npy").read_bytes() for name in NAMES}
    zipped(desk.folder / "bomb.npz", {**members, "act.npy": lying((3, 5), body=bytes(8 << 20))})
    data = bytearray((desk.folder / "bomb.npz").read_bytes())
    true, false = struct.pack("<I", 128 + (8 << 20)), struct.pack("<I", 128 + 60)
    assert data.count(true) == 2
    (desk.folder / "bomb.npz").write_bytes(data.replace(true, false))
    assert desk.run(dump="bomb.npz").code == 0
    (row,) = (row for row in desk.result().tensors if row.name == "act")
    assert row.state == "UNKNOWN"
    assert "longer than the 188 bytes" in row.reason


def test_an_npz_that_claims_more_than_deflate_can_make(desk: Desk) -> None:
    zipped(desk.folder / "bomb.npz", {"act.npy": lying((3, 5))})
    data = (desk.folder / "bomb.npz").read_bytes()
    claimed = data.replace(struct.pack("<I", 188), struct.pack("<I", 2**31))
    (desk.folder / "bomb.npz").write_bytes(claimed)
    assert "more than the archive can hold" in desk.refused(dump="bomb.npz")


def test_members_that_climb_out_are_only_names(desk: Desk) -> None:
    members = {f"{name}.npy": (desk.folder / "dump" / f"{name}.npy").read_bytes() for name in NAMES}
    zipped(desk.folder / "d.npz", {**members, "../../evil.npy": lying((3, 5)), "/abs.npy": lying((3, 5))})
    assert desk.run(dump="d.npz").code == 0
    assert not list(desk.folder.parent.glob("**/evil*"))
    (desk.folder / "half.npz").write_bytes((desk.folder / "d.npz").read_bytes()[:200])
    assert "no readable .npz archive" in desk.refused(dump="half.npz")


def test_outputs_only(desk: Desk) -> None:
    for name in ("mm", "add", "act"):
        (desk.folder / "dump" / f"{name}.npy").unlink()
    assert desk.run().code == 0
    assert "1 of 4 tensors" in desk.result().summary


def test_no_output_is_said(desk: Desk) -> None:
    (desk.folder / "dump" / "y.npy").unlink()
    seen = desk.run("--quiet")
    assert "not in the dump: output 'y'" in " ".join(seen.out.split())


def test_a_dump_of_zeros_is_no_proof_of_health(desk: Desk) -> None:
    for name in NAMES:
        desk.npy(name, np.zeros((3, 5), np.float32))
    assert desk.run().code == 1


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_empty_tensors_and_scalars(desk: Desk, rows: int) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Mul", ["r", "r"], ["s"]),
        helper.make_node("ReduceSum", ["s"], ["t"], keepdims=0),
        helper.make_node("Sqrt", ["t"], ["y"]),
    ]
    furnished(desk, model_of(nodes, {"x": ["N", 3]}, {"y": []}, {}), {"x": np.ones((rows, 3), np.float32)})
    assert desk.run().code == 0
    desk.npy("t", np.float32(70))
    desk.npy("y", np.sqrt(np.float32(70)))
    for precision in ("auto", "fp32", "fp16", "int8"):
        assert desk.run("--precision", precision).code == 1


def test_five_thousand_files_are_no_burden(desk: Desk) -> None:
    (desk.folder / "dump" / "more").mkdir()
    content = saved(np.zeros(7, np.float32))
    for k in range(5000):
        (desk.folder / "dump" / "more" / f"blob_{k}.npy").write_bytes(content)
    start = time.process_time()
    assert desk.run("--quiet").code == 0
    assert time.process_time() - start < 30


# --- the inputs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        ({"xx": X}, ("lack x: float32 [3, 6]", "did you mean 'xx'?")),
        ({"foo": X, "bar": X}, ("lack x: float32 [3, 6]", "there is foo, bar")),
        ({"x": X.T}, ("shape [6, 3]", "wants [3, 6]", "transpose")),
        ({"x": X[:2]}, ("shape [2, 6]", "wants [3, 6]", "after preprocessing")),
        ({"x": X.astype(np.complex64)}, ("complex64", "wants float32")),
        ({"x": np.full((3, 6), "a")}, ("is text", "wants float32")),
        ({"x": X.astype(np.float64) * 1e300}, ("beyond its range",)),
        ({"x": np.array([None, {}], dtype=object)}, ("never loaded",)),
    ],
)
def test_inputs_that_do_not_fit(desk: Desk, arrays: dict[str, Any], parts: tuple[str, ...]) -> None:
    np.savez(desk.folder / "given.npz", **arrays)
    line = desk.refused("--inputs", "given.npz")
    assert line.startswith("error: given.npz: ")
    assert all(part in line for part in parts)


def test_inputs_that_are_not_there(desk: Desk) -> None:
    assert "nope.npz: cannot be read: no such file" in desk.refused("--inputs", "nope.npz")
    (desk.folder / "inputs.npz").unlink()
    line = desk.refused()
    assert "Expected: x: float32 [3, 6]" in line
    assert "--inputs" in line


def test_inputs_that_are_not_finite_are_a_warning(desk: Desk) -> None:
    odd = X.copy()
    odd[0, 0], odd[1, 1] = np.nan, np.inf
    furnished(desk, net(), {"x": odd})
    seen = desk.run()
    assert (seen.code in (0, 1), seen.err) == (True, "")
    assert any("2 values that are not finite" in text for text in desk.result().warnings)
    assert desk.result().verdict != "fault"


# --- options ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--threshhold", "cosine=1"], ("--threshhold", "Did you mean --threshold?")),
        (["--threshold", "cosin=0.9"], ("'cosin'", "did you mean cosine?")),
        (["--threshold", "cosine"], ("name=value", "cosine=0.99")),
        (["--threshold", "cosine=high"], ("'high' is no number", "cosine=0.99")),
        (["--threshold", "cosine=nan"], ("no number",)),
        (["--threshold", "cosine=1.5"], ("between -1 and 1",)),
        (["--threshold", "max_abs=-1"], ("cannot be met", "never below 0")),
        (["--threshold"], ("--threshold needs a value",)),
        (["--precision", "int88"], ("int88", "int8")),
        (["--policy", "clasic"], ('Did you mean "classic"?',)),
        (["--memory", "lots"], ("no size", "2G")),
        (["--memory", "0"], ("no size",)),
        (["--memory", "2"], ("less than 1M", "2G")),
        (["--memory", "9" * 400], ("no size",)),
        (["--inputs", ""], ("is empty", "variable unset")),
        (["--inputs="], ("--inputs: is empty",)),
        (["--sample", "-1"], ("--sample",)),
        (["--convention", "nope"], ("nope",)),
        (["extra"], ("'extra' belongs to no option",)),
        (["--golden-dump", "nope"], ("nope: cannot be read",)),
        (["--golden-dump", "inputs.npz"], ("inputs.npz", "no entry is named like a tensor that the model computes")),
        (["--quantized-model", "nope"], ("nope: no such model file",)),
        (["--quant-params", "nope"], ("nope: cannot be read", "--quant-params takes a JSON file")),
        (["--quant-params", "model.onnx"], ("model.onnx: is no JSON", "zero_point")),
    ],
)
def test_options_that_cannot_be(desk: Desk, words: list[str], parts: tuple[str, ...]) -> None:
    line = desk.refused(*words)
    assert all(part in line for part in parts)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "the MODEL is missing"),
        (["model.onnx"], "--target-dump is missing"),
        (["model.onnx", "dump"], "--target-dump is missing"),
        (["model.onnx", "--target-dump"], "--target-dump needs a value"),
        (["dmo"], "the command 'demo'"),
        (["demo", "-o", "model.onnx"], "model.onnx"),
        (["demo", "-o", "dump"], "something else than an earlier demo"),
    ],
)
def test_commands_that_lack_something(desk: Desk, words: list[str], part: str) -> None:
    assert main(words) == 2
    shown = desk.capsys.readouterr()
    assert part in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[tensors]\n"mm" = "add"\nbad line\n', ("m.toml:3", "not valid TOML")),
        ('[tensors]\n"nomm" = "add"\n', ("m.toml", "does not hold: 'nomm'", "nearest: mm")),
        ('[tensors]\n"qqq" = "add"\n', ("m.toml", "does not hold: 'qqq'", "there is ")),
        ('[tensors]\n"mm" = "adx"\n', ("m.toml", "does not have: 'adx'", "nearest: add")),
        ("[tensors]\nmm = 3\n", ("m.toml:2", "is no text")),
        ('[tensors]\na.b = "c"\n', ("m.toml:2", "quotes")),
        ("".join(f'"{name}" = ""\n' for name in NAMES), ("m.toml", "ignores every entry")),
        (b"\xff\xfe", ("m.toml", "no UTF-8")),
        ('[tensor]\n"mm" = "add"\n', ("m.toml", "unknown key 'tensor'", "did you mean [tensors]?")),
        ('"mm" = "add"\n[tensors]\n"y" = "y"\n', ("m.toml", "unknown key 'mm'", "below [tensors]")),
        ('[tensors]\n"mm" = "add"\n"act" = "add"\n', ("m.toml", "two entries", "'add': 'mm' and 'act'")),
    ],
)
def test_maps_that_are_none(desk: Desk, text: str | bytes, parts: tuple[str, ...]) -> None:
    line = desk.refused("--map", desk.file("m.toml", text))
    assert all(part in line for part in parts)


def test_a_json_map_with_a_key_that_means_nothing(desk: Desk) -> None:
    line = desk.refused("--map", desk.file("m.json", '{"tensors": {"mm": "mm"}, "tensers": {"y": "y"}}'))
    assert "unknown key 'tensers' (did you mean [tensors]?" in line


def test_two_entries_may_be_left_out_by_one_map(desk: Desk) -> None:
    assert desk.run("--map", desk.file("m.toml", '[tensors]\n"mm" = ""\n"act" = ""\n"y" = "y"\n')).code == 0


def test_a_map_that_is_not_there(desk: Desk) -> None:
    assert "nomap.toml: cannot be read: no such file" in desk.refused("--map", "nomap.toml")
    assert "dump: cannot be read: is a directory" in desk.refused("--map", "dump")


# --- what is written ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "part"),
    [
        ("model.onnx", "is no folder"),
        ("model.onnx/sub", "model.onnx is no folder"),
        ("dump", "something else than an earlier result"),
        (".", "something else than an earlier result"),
        ("dangling", "is no folder"),
        ("x" * 300, "name too long"),
    ],
)
def test_an_output_folder_that_cannot_be_is_refused_before_the_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, out: str, part: str
) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError("the run began")

    (desk.folder / "dangling").symlink_to("nowhere")
    monkeypatch.setattr("bisect_align.session.run.run", never)
    before = sorted(path.name for path in desk.folder.iterdir())
    assert part in desk.refused("-o", out).lower()
    assert sorted(path.name for path in desk.folder.iterdir()) == before


@pytest.mark.parametrize("failing", ["result.json", "tensors.csv"])
def test_a_full_disk_leaves_the_earlier_result(desk: Desk, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    assert desk.run().code == 0
    before = desk.left()
    desk.npy("y", np.zeros((3, 5), np.float32))
    write = Path.write_bytes

    def full(path: Path, data: Any) -> int:
        if path.name.endswith(failing):
            write(path, data[:10])
            raise OSError(28, "No space left on device", str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    assert "bisect-align-out: cannot be written: No space left on device" in desk.refused()
    assert desk.left() == before


def test_memory_that_is_used_up_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*given: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("bisect_align.session.run.prepare", greedy)
    assert "--memory" in desk.refused()


@pytest.mark.parametrize(
    "name",
    [
        f"a{ESC}[31mred\nnew\x07",
        "[bold red]x[/bold red][/]",
        "=cmd|' /C calc'!A0",
        "../../../../evil",
        "/etc/evil",
        "L" * 300,
        "層/ノード:é\u202eabc",
        "a\0b",
    ],
)
def test_names_are_only_names(desk: Desk, name: str) -> None:
    desk.file("model.onnx", net(name).SerializeToString())
    values = computed(desk.folder / "model.onnx", {"x": X})
    values[name] = values[name] + np.float32(1)
    with np.errstate(all="ignore"):
        values["act"] = np.tanh(values[name])
        powers = np.exp(values["act"])
        values["y"] = powers / powers.sum(-1, keepdims=True)
    header, body = {}, b""
    for key, value in values.items():
        header[key] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(body), len(body) + value.nbytes]}
        body += value.astype("<f4").tobytes()
    text = json.dumps(header).encode()
    desk.file("d.safetensors", struct.pack("<Q", len(text)) + text + body)
    before = {path.name for path in desk.folder.iterdir()}
    seen = desk.run(dump="d.safetensors")
    assert (seen.code, seen.err) == (1, "")
    assert desk.result().culprits[0].region.output == name
    assert {path.name for path in desk.folder.iterdir()} == before | {"bisect-align-out"}
    table = desk.left()["tensors.csv"].decode()
    for text_out in (seen.out, table):
        assert not [char for char in text_out if char != "\n" and (ord(char) < 32 or char == "\u202e")]
    assert table.count("\n") == 5
    assert "\n=" not in table
    assert ",=" not in table
    if name.startswith("["):
        assert name in seen.out


# --- the terminal -------------------------------------------------------------------------------------------------------------

PROGRAM = "import sys; from bisect_align.cli.main import main; sys.exit(main())"


def program(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "model.onnx", "--target-dump", "dump", *words]
    return subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, timeout=120, check=False, **options)


def test_a_terminal_without_unicode(desk: Desk) -> None:
    furnished(desk, net("層"), {"x": X})
    desk.npy("層", np.zeros((3, 5), np.float32))
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONIOENCODING" and not key.startswith("LC_")}
    for words in ([], ["--json"]):
        done = program(desk.folder, *words, stdout=subprocess.PIPE, env={**bare, "LC_ALL": "C", "PYTHONUTF8": "0"})
        assert (done.returncode, done.stderr) == (1, "")
    done = program(desk.folder, "--map", "層.toml", stdout=subprocess.PIPE, env={**bare, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: \\u5c64.toml: cannot be read")


def test_a_reader_that_has_gone_costs_nothing(desk: Desk) -> None:
    read, write = os.pipe()
    os.close(read)
    done = program(desk.folder, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    assert desk.result().complete


INTERRUPTED = """
import os, sys, time
from bisect_align.session.hunt import Hunt
from bisect_align.cli.main import main
compare = Hunt.compare
def slow(self, *given, **more):
    compare(self, *given, **more)
    print("comparing", flush=True)
    while True:
        time.sleep(0.05)
Hunt.compare = slow
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_leaves_what_is_known(desk: Desk) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "model.onnx", "--target-dump", "dump"]
    running = subprocess.Popen(command, cwd=desk.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        assert running.stdout.readline() == "comparing\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, err) == (130, "error: interrupted\n")
    held = json.loads(desk.left()["result.json"])
    assert (held["complete"], held["verdict"]) == (False, None)
    assert "interrupted" in held["summary"]
    assert [row["state"] for row in held["tensors"]].count("GOOD") > 0
