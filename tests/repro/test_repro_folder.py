"""What a repro folder holds, what it never overwrites, and what its script says; on small models with planted faults."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from tiny_target import Fault, convolutional, model_of, node, normal, offset, one_element, run_target, write_dump, write_model

from bisect_align.cli.main import main
from bisect_align.errors import OutputError, UsageError
from bisect_align.model.load import load
from bisect_align.repro.chosen import chosen
from bisect_align.repro.folder import safe
from bisect_align.repro.write import Repro, write
from bisect_align.result.result import Result
from bisect_align.session.options import Options
from bisect_align.session.reopen import Reopened
from bisect_align.session.run import run

Array = NDArray[Any]
IMAGE = {"x": normal(1, 1, 3, 10, 8)}


def opened(
    folder: Path, model: onnx.ModelProto, inputs: Mapping[str, Array], faults: Mapping[str, Fault], **more: Any
) -> tuple[Reopened, Result]:
    values = run_target(model, inputs, faults=faults)
    options = Options(
        model=write_model(folder, model),
        inputs=write_dump(folder / "inputs.npz", inputs),
        target_dump=write_dump(folder / "dump.npz", values, set(values) - set(inputs)),
        **more,
    )
    result = run(options)
    return Reopened(result, options), result


def written(folder: Path, model: onnx.ModelProto, inputs: Mapping[str, Array], faults: Mapping[str, Fault], **how: Any) -> Repro:
    seen, result = opened(folder, model, inputs, faults)
    return write(seen, result, chosen(seen, result)[0][1], folder / "case", **how)


def script(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "repro.py"), *map(str, words)], capture_output=True, text=True, check=False
    )


def tensor(file: Path) -> Array:
    made = TensorProto()
    made.ParseFromString(file.read_bytes())
    return np.asarray(numpy_helper.to_array(made))


def test_the_folder_stands_alone(tmp_path: Path) -> None:
    made = written(tmp_path, convolutional(), IMAGE, {"c1": one_element(5)})
    assert (made.verified, made.nodes, made.tensor) == (True, 1, "c1")
    model = onnx.load(made.folder / "model.onnx")
    assert [n.op_type for n in model.graph.node] == ["Conv"]
    assert {i.name for i in model.graph.initializer} == {"w1", "v1"}
    data = made.folder / "test_data_set_0"
    for name in ("input_0", "output_0"):
        np.testing.assert_array_equal(tensor(data / f"{name}.pb"), np.load(data / f"{name}.npy"))
    values = run_target(convolutional(), IMAGE, faults={"c1": one_element(5)})
    np.testing.assert_array_equal(np.load(data / "input_0.npy"), values["r0"])
    np.testing.assert_array_equal(np.load(made.folder / "target_output_0.npy"), values["c1"])
    moved = made.folder.rename(tmp_path / "elsewhere")
    done = script(moved)
    assert done.returncode == 1
    assert "STILL DIFFERS" in done.stdout


def test_the_script_checks_a_mended_target_and_runs_one(tmp_path: Path) -> None:
    made = written(tmp_path, convolutional(), IMAGE, {"c1": offset(0.5)})
    golden = made.folder / "test_data_set_0" / "output_0.npy"
    assert script(made.folder, "--target-output", golden).returncode == 0
    raw = tmp_path / "raw.bin"
    np.load(golden).tofile(raw)
    assert script(made.folder, "--target-output", raw).returncode == 0
    np.save(tmp_path / "flat.npy", np.load(golden).ravel())
    assert script(made.folder, "--target-output", tmp_path / "flat.npy").returncode == 0
    raw.write_bytes(bytes(1024))
    done = script(made.folder, "--target-output", raw)
    assert done.returncode == 2
    assert "holds 1024 bytes, expected" in done.stderr
    target = tmp_path / "target with space.py"
    target.write_text("import shutil, sys\nshutil.copy(sys.argv[2] + '/output_0.npy', sys.argv[3] + '/output_0.npy')\n")
    command = f"'{sys.executable}' '{target}' {{model}} {{inputs}} {{outputs}}"
    assert script(made.folder, "--run", command).returncode == 0


@pytest.mark.parametrize("words", [("--run", "false"), ("--run", "true"), ("--target-output", "nowhere.npy"), ("--nonsense",)])
def test_trouble_is_no_verdict(tmp_path_factory: pytest.TempPathFactory, words: tuple[str, ...]) -> None:
    folder = tmp_path_factory.getbasetemp() / "trouble"
    if not folder.exists():
        folder.mkdir()
        written(folder, convolutional(), IMAGE, {"c1": offset(0.5)})
    done = script(folder / "case", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_names_of_strangers_reach_neither_paths_nor_code(tmp_path: Path) -> None:
    evil = '../../x"; import os # `rm`\n'
    nodes = [node("Tanh", "x", "t"), node("Relu", "t", "r")]
    nodes[0].output[0] = nodes[1].input[0] = nodes[0].name = evil
    made = written(tmp_path, model_of(nodes, {"x": (4, 6)}), {"x": normal(3, 4, 6)}, {evil: offset(1)})
    assert made.verified, made.text
    assert script(made.folder).returncode == 1
    assert {f.name for f in tmp_path.iterdir()} == {"model.onnx", "inputs.npz", "dump.npz", "case"}
    assert "import os #" not in (made.folder / "repro.py").read_text()
    readme = (made.folder / "README.md").read_text()
    assert "`rm`" not in readme
    assert all(sign.isalnum() or sign == "_" for sign in safe(evil))


def test_only_an_earlier_repro_is_overwritten(tmp_path: Path) -> None:
    seen, result = opened(tmp_path, convolutional(), IMAGE, {"c1": offset(0.5)})
    ((_, culprit),) = chosen(seen, result)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="something else"):
        write(seen, result, culprit, mine)
    assert [f.name for f in mine.iterdir()] == ["thesis.txt"]
    case = tmp_path / "case"
    write(seen, result, culprit, case)
    (case / "stale.txt").write_text("of the last time")
    write(seen, result, culprit, case)
    assert not (case / "stale.txt").exists()
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")]


def test_a_half_model_keeps_its_type_and_brings_its_golden(tmp_path: Path) -> None:
    half = np.float16
    model = model_of(
        [node("MatMul", "x w", "m"), node("Add", "m c", "a"), node("Relu", "a", "r")],
        {"x": (4, 8)},
        weights={"w": normal(1, 8, 8).astype(half), "c": normal(2, 8).astype(half)},
        kind=TensorProto.FLOAT16,
    )
    x = {"x": normal(3, 4, 8).astype(half)}
    graph = load(write_model(tmp_path, model)).graph
    values = run_target(graph, x, "fp16", {"a": offset(1)})
    options = Options(
        model=tmp_path / "model.onnx",
        inputs=write_dump(tmp_path / "inputs.npz", x),
        target_dump=write_dump(tmp_path / "dump.npz", {n: values[n] for n in ("m", "a", "r")}),
        precision="fp16",
    )
    result = run(options)
    seen = Reopened(result, options)
    made = write(seen, result, chosen(seen, result, "a")[0][1], tmp_path / "case")
    assert made.verified, made.text
    assert onnx.load(made.folder / "model.onnx").graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    assert onnx.load(made.folder / "model_float32.onnx").graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    data = made.folder / "test_data_set_0"
    assert (tensor(data / "input_0.pb").dtype, np.load(data / "input_0.npy").dtype) == (half, np.float32)
    raw = tmp_path / "raw.bin"
    np.load(data / "output_0.npy").astype(half).tofile(raw)
    assert script(made.folder, "--target-output", raw).returncode == 0
    target = tmp_path / "target.py"
    target.write_text(
        "import sys, numpy as np, onnxruntime as ort\n"
        "s = ort.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])\n"
        "feeds = {g.name: np.load(f'{sys.argv[2]}/input_{k}.npy') for k, g in enumerate(s.get_inputs())}\n"
        "np.save(sys.argv[3] + '/output_0.npy', s.run(None, feeds)[0])\n"
    )
    done = script(made.folder, "--run", f"'{sys.executable}' '{target}' {{model}} {{inputs}} {{outputs}}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_healthy_operator_is_said_to_be_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen, result = opened(tmp_path, convolutional(), IMAGE, {"c1": offset(0.5)})
    for name in ("n0", "n1"):
        made = write(seen, result, chosen(seen, result, name)[0][1], tmp_path / name)
        assert made.verified
        assert "nobody is accused here: the case shows a healthy operator" in made.sentence
        readme = (made.folder / "README.md").read_text()
        assert "NOT REPRODUCED" not in readme
        assert "Nobody is accused here" in readme
        assert script(made.folder).returncode == 0


def run_here(folder: Path) -> Path:
    """A run from the command line, whose result lies in out; its dump, a file a tensor."""
    values = run_target(convolutional(), IMAGE, faults={"c1": offset(0.5)})
    dump = folder / "dump"
    dump.mkdir()
    for name in set(values) - {"x"}:
        np.save(dump / f"{name}.npy", values[name])
    words = [str(write_model(folder, convolutional())), "--target-dump", str(dump)]
    words += ["--inputs", str(write_dump(folder / "inputs.npz", IMAGE)), "-o", str(folder / "out"), "--quiet"]
    assert main(words) == 1
    return dump


@pytest.mark.parametrize("error", [0.3, 0.45, 1.0])
def test_a_dump_that_changed_since_the_run_is_not_taken_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: float
) -> None:
    dump = run_here(tmp_path)
    right = run_target(convolutional(), IMAGE)["c1"]
    np.save(dump / "c1.npy", offset(error)(right))
    assert main(["repro", str(tmp_path / "out"), "-o", str(tmp_path / "cases")]) == 1
    said = capsys.readouterr().out
    assert "the dump is not what the run read: error 0." in said
    assert "the run saw 0." in said
    assert "as in the run" not in said
    readme = next((tmp_path / "cases").glob("*/README.md")).read_text()
    assert "NOT REPRODUCED" in readme
    assert "operator alone" not in readme


def test_a_dump_file_that_is_gone_or_damaged_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = run_here(tmp_path)
    whole = {name: (dump / f"{name}.npy").read_bytes() for name in ("c1", "r0")}
    other = {name: np.load(dump / f"{name}.npy").reshape(-1)[:-5] for name in whole}
    for name, content in whole.items():
        file = dump / f"{name}.npy"
        ways = {
            "is no longer in the dump": file.unlink,
            "bytes of values": lambda f=file, c=content: f.write_bytes(c[:-100]),
            "has another shape": lambda f=file, n=name: np.save(f, other[n]),
        }
        for what, spoil in ways.items():
            spoil()
            capsys.readouterr()
            assert main(["repro", str(tmp_path / "out"), "-o", str(tmp_path / "cases")]) == 2
            (line,) = capsys.readouterr().err.strip().splitlines()
            assert name in line
            assert what in line
            assert not (tmp_path / "cases").exists() or not list((tmp_path / "cases").iterdir())
            file.write_bytes(content)


def test_nothing_foreign_is_printed_among_the_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kind = np.dtype(ml_dtypes.bfloat16)
    nodes = [node("MatMul", "x w", "m"), node("Add", "m c", "a"), node("Relu", "a", "r")]
    weights = {"w": normal(1, 8, 8).astype(kind), "c": normal(2, 8).astype(kind)}
    path = write_model(tmp_path, model_of(nodes, {"x": (4, 8)}, weights=weights, kind=TensorProto.BFLOAT16))
    x = {"x": normal(3, 4, 8).astype(kind).astype(np.float32)}
    values = run_target(load(path).graph, x, "bf16", {"a": offset(1)})
    dump = write_dump(tmp_path / "dump.npz", {n: values[n] for n in ("m", "a", "r")})
    words = [str(path), "--target-dump", str(dump), "--inputs", str(write_dump(tmp_path / "inputs.npz", x))]
    main([*words, "-o", str(tmp_path / "out"), "--repro", str(tmp_path / "cases"), "--json"])
    assert json.loads(capfd.readouterr().out)["culprits"][0]["repro"]


def test_options_that_say_nothing_are_refused(tmp_path: Path) -> None:
    for words in (["--context", "-1"], ["--all", "--minimize"], ["--all", "--tensor", "t"], ["--all", "--context", "1"]):
        assert main(["repro", str(tmp_path / "x.onnx"), *words]) == 2


def test_a_place_for_repros_that_cannot_be_written_is_told_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    words = [str(write_model(tmp_path, convolutional())), "--target-dump", str(write_dump(tmp_path / "dump.npz", IMAGE))]
    assert main([*words, "-o", str(tmp_path / "out"), "--repro", str(tmp_path / "file")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_context_takes_the_neighbours_in(tmp_path: Path) -> None:
    made = written(tmp_path, convolutional(), IMAGE, {"c1": offset(0.5)}, context=1)
    assert made.verified, made.text
    model = onnx.load(made.folder / "model.onnx")
    assert [n.op_type for n in model.graph.node] == ["Relu", "Conv", "BatchNormalization"]
    assert [o.name for o in model.graph.output] == ["n1"]
    assert [i.name for i in model.graph.input] == ["n0"]


def test_a_split_with_an_absent_output_can_be_cut_and_run(tmp_path: Path) -> None:
    model = model_of([node("Split", "x", "- s", axis=1, num_outputs=2), node("Neg", "s", "y")], {"x": (4, 12)})
    made = written(tmp_path, model, {"x": normal(5, 4, 12)}, {"s": offset(1)})
    assert made.verified, made.text


def test_the_command_line_makes_them_from_a_result_wherever_it_is_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = run_target(convolutional(), IMAGE, faults={"c1": offset(0.5)})
    write_model(tmp_path, convolutional())
    write_dump(tmp_path / "inputs.npz", IMAGE)
    write_dump(tmp_path / "dump.npz", values, set(values) - {"x"})
    words = ["model.onnx", "--target-dump", "dump.npz", "--inputs", "inputs.npz", "-o", "out", "--repro", "cases", "--quiet"]
    assert main(words) == 1
    named = json.loads(Path("out/result.json").read_text())["culprits"][0]["repro"]
    assert script(tmp_path / named).returncode == 1
    monkeypatch.chdir("/")
    capsys.readouterr()
    assert main(["repro", str(tmp_path / "out"), "-o", str(tmp_path / "again"), "--minimize"]) == 0
    said = capsys.readouterr().out
    assert "shows the failure" in said
    assert "Cut down to one wrong element" in said
    assert main(["repro", str(tmp_path / "out"), "-o", str(tmp_path / "again"), "--tensor", "nope"]) == 2
    assert main(["repro", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "again")]) == 2


def test_a_result_without_culprits_has_no_case(tmp_path: Path) -> None:
    seen, result = opened(tmp_path, convolutional(), IMAGE, {})
    with pytest.raises(UsageError, match="no culprit"):
        chosen(seen, result)
