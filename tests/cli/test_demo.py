"""The demo: its files are a case of the corpus, it overwrites nothing, and it finds the fault."""

from __future__ import annotations

import json
import re
import shlex
from importlib import resources
from pathlib import Path

import pytest
import sample_results

from bisect_align.cli.demo import unpack
from bisect_align.cli.main import main
from bisect_align.errors import OutputError
from bisect_align.result.files import read

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT / "models" / "bugs" / "ort-averagepool19-end-padding"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def words(report: str) -> list[str]:
    """Without figures, whose last digits depend on the processor, and without line ends, which depend on the figures."""
    return [word for word in report.split() if word != "..." and not any(char.isdigit() for char in word)]


def test_the_demo_is_a_case_of_the_corpus(tmp_path: Path) -> None:
    unpack(tmp_path / "demo")
    wanted = {name: data for name, data in contents(CASE).items() if not name.startswith("control") and name != "case.json"}
    assert contents(tmp_path / "demo") == wanted
    assert sum(map(len, wanted.values())) < 300_000  # it ships in the package


def test_unpacking_twice_is_fine_and_a_strange_folder_is_left_alone(tmp_path: Path) -> None:
    unpack(tmp_path / "demo")
    unpack(tmp_path / "demo")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.onnx").write_bytes(b"mine")
    with pytest.raises(OutputError, match="something else"):
        unpack(tmp_path / "other")
    assert (tmp_path / "other" / "model.onnx").read_bytes() == b"mine"


def test_the_printed_command_is_the_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr("bisect_align.session.run.run", lambda options, progress: seen.append(options) or sample_results.fault())
    assert main(["demo", "-o", "my demo"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  bisect-align ")]
    assert main(shlex.split(line)[1:]) == 1
    assert seen[0] == seen[1]


def test_the_demo_finds_the_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 1
    shown = capsys.readouterr().out
    assert "FAULT: " in shown
    (example,) = re.findall(r"^```text\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert words(example)
    assert " ".join(words(example)) in " ".join(words(shown)), "README.md shows what the demo prints"
    truth = json.loads((CASE / "case.json").read_text())["culprit"]
    culprit = read(tmp_path / "bisect-align-demo" / "result").culprits[0]
    assert culprit.region.output == truth["tensor"]
    assert (resources.files("bisect_align") / "demo" / "model.onnx").is_file()
