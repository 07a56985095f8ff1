"""The program as its users meet it: exit codes, one-line errors, clean output, and nothing heavy before a run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_results

from bisect_align import __version__
from bisect_align.cli.main import main
from bisect_align.errors import DumpError
from bisect_align.result import files
from bisect_align.result.result import Result

COMMAND = ["m.onnx", "--target-dump", "dump"]
Answer = Callable[[Any, Any], Result]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any], list[Any]]:
    """Let the session answer with a Result or an exception; the list takes the options of each run."""
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []

    def install(outcome: Any) -> list[Any]:
        def run(options: Any, progress: Any) -> Result:
            seen.append(options)
            progress.stage("golden", 3)
            progress.advance()
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome  # type: ignore[no-any-return]

        monkeypatch.setattr("bisect_align.session.run.run", run)
        return seen

    return install


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (sample_results.aligned(), 0),
        (sample_results.fault(), 1),
        (sample_results.dump_suspect(), 1),
        (sample_results.interrupted(), 1),
    ],
)
def test_the_verdict_is_the_exit_code(answer: Any, capsys: pytest.CaptureFixture[str], result: Result, code: int) -> None:
    answer(result)
    assert main(COMMAND) == code
    shown = capsys.readouterr()
    assert result.summary.split()[0] in shown.out.splitlines()[0]
    assert shown.err == ""


def test_json_is_the_result_and_nothing_else(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer(sample_results.fault())
    assert main([*COMMAND, "--json"]) == 1
    assert files.from_json(capsys.readouterr().out.encode()) == sample_results.fault()


def test_quiet_is_the_verdict_line(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer(sample_results.aligned())
    assert main([*COMMAND, "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("ALIGNED: ")


def test_every_option_reaches_the_session(answer: Any) -> None:
    seen = answer(sample_results.aligned())
    words = shlex.split(
        "m.onnx --target-dump d --inputs i.npz -o out --map m.toml --golden-dump g --precision int8 --policy classic "
        "--threshold cosine=0.99 --threshold max_abs=1e-3 --scan --memory 1.5G --metrics full --repeat-dump d2 --repeat-dump d3"
    )
    assert main(words) == 0
    (options,) = seen
    assert (options.model, options.target_dump, options.inputs) == (Path("m.onnx"), Path("d"), Path("i.npz"))
    assert (options.out, options.map, options.golden_dump) == (Path("out"), Path("m.toml"), Path("g"))
    assert (options.precision, options.policy, options.scan) == ("int8", "classic", True)
    assert options.thresholds == {"cosine": 0.99, "max_abs": 1e-3}
    assert (options.metrics, options.repeat_dumps) == ("full", (Path("d2"), Path("d3")))
    assert options.memory == 3 * 2**29
    assert options.command == ("bisect-align", *words)


def test_the_result_goes_to_a_folder_of_its_own_by_default(answer: Any) -> None:
    seen = answer(sample_results.aligned())
    main(COMMAND)
    assert seen[0].out == Path("bisect-align-out")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            DumpError("cannot be read", where="dump/a.npy", hint="is it whole?"),
            2,
            "error: dump/a.npy: cannot be read (is it whole?)",
        ),
        (DumpError("two\nlines \x1b[31mred"), 2, "error: two lines \\x1b[31mred"),
        (PermissionError(13, "Permission denied", "dump"), 2, "error: dump: Permission denied"),
        (KeyError("x"), 2, "internal error: KeyError: 'x'; please report with --verbose"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
    ],
)
def test_trouble_is_one_line(answer: Any, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str) -> None:
    answer(error)
    assert main(COMMAND) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", line + "\n")


def test_verbose_shows_where_an_internal_error_came_from(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer(ZeroDivisionError("by zero"))
    assert main([*COMMAND, "--verbose"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "MODEL"),
        (["m.onnx"], "--target-dump"),
        ([*COMMAND, "--scna"], "Did you mean --scan?"),
        ([*COMMAND, "--policy", "clasic"], 'Did you mean "classic"?'),
        ([*COMMAND, "--precision", "fp17"], "fp16"),
        ([*COMMAND, "--threshold", "cosin=1"], "did you mean cosine?"),
        ([*COMMAND, "--threshold", "cosine"], "name=value"),
        ([*COMMAND, "--threshold", "cosine=high"], "'high' is no number"),
        ([*COMMAND, "--threshold", "worst_golden=1"], "one of cosine, "),
        ([*COMMAND, "--memory", "much"], "2G"),
        ([*COMMAND, "--memory", "0"], "'0' is no size"),
    ],
)
def test_a_wrong_word_is_explained_in_one_line(
    answer: Any, capsys: pytest.CaptureFixture[str], words: list[str], part: str
) -> None:
    seen = answer(sample_results.aligned())
    assert main(words) == 2
    shown = capsys.readouterr()
    assert part in shown.err
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert (shown.out, seen) == ("", [])


def test_a_folder_of_another_hand_is_refused_before_the_run(
    answer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = answer(sample_results.aligned())
    (tmp_path / "thesis.tex").touch()
    assert main([*COMMAND, "-o", "."]) == 2
    assert "something else" in capsys.readouterr().err
    assert seen == []


def python(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.mark.parametrize("words", [["--help"], ["demo", "--help"], ["--version"], ["--nonsense"]])
def test_nothing_heavy_is_imported_before_a_run(words: list[str]) -> None:
    heavy = ("numpy", "onnx", "onnxruntime", "tqdm", "msgspec")
    code = (
        f"import sys; from bisect_align.cli.main import main; main({words!r}); print([m for m in {heavy!r} if m in sys.modules])"
    )
    assert python(code).stdout.splitlines()[-1] == "[]"


def test_help_is_instant() -> None:
    code = "import time; from bisect_align.cli.main import main; main(['--help']); print(time.process_time())"
    assert min(float(python(code).stdout.splitlines()[-1]) for _ in range(3)) < 0.5


PRINTING = """
import sys
from pathlib import Path
from bisect_align.cli.output import print_result
from bisect_align.result.files import from_json
result = from_json(Path(sys.argv[1]).read_bytes())
print_result(result, Path("out"), json="--json" in sys.argv, quiet=False)
"""


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "r.json").write_bytes(files.to_json(sample_results.fault()))
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", PRINTING, str(tmp_path / "r.json"), *flags]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_outside_the_terminals_encoding_is_escaped() -> None:
    words = ["m.onnx", "--target-dump", "d", "--threshold", "größe=1"]
    code = f"import sys; from bisect_align.cli.main import main; sys.exit(main({words!r}))"
    done = python(code, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2
    assert "gr\\xf6\\xdfe" in done.stderr


def test_version_names_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_json_numbers_are_json(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer(sample_results.fault())
    main([*COMMAND, "--json"])

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(capsys.readouterr().out, parse_constant=refuse)
