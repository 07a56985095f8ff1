"""Documents against the program: every command, option, file, verdict and constant that they show exists and is as they say."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bisect_align.cli.main import app, main
from bisect_align.dumps.convention import load
from bisect_align.result.result import Verdict

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = ("compare", "conventions", "demo", "drill", "match", "repro")
REPRO = ROOT / "bisect_align" / "repro" / "alone.py"  # repro.py of every repro
RUNNERS = ("bisect-align", "python", "pytest", "just")


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def code_of(document: Path) -> Iterator[str]:
    """Lines of fenced bash and of indented blocks, and pieces of code inside a sentence."""
    text = text_of(document)
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (line.strip() for line in re.findall(r"^ {4}\S.*", prose, re.MULTILINE))
    yield from re.findall(r"`([^`\n]+)`", prose)


def commands_of(document: Path) -> list[list[str]]:
    found = [part.strip().lstrip("$ ") for line in code_of(document) for part in re.split(r"&&|\s#\s", line)]
    return [shlex.split(part) for part in found if part.split(" ")[0] in RUNNERS and " " in part]


SHOWN = [(document, words) for document in DOCUMENTS for words in commands_of(document)]


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Command ("" for the main one) -> its options, as the parser knows them."""
    found = {}
    for command in ("", *COMMANDS):
        arguments = (app[command] if command else app).assemble_argument_collection(parse_docstring=False)
        names = {name for argument in arguments if argument.parse for name in argument.names}
        found[command] = {name for name in names if name.startswith("-")} | {"--help"}
    found[""].add("--version")
    return found


def test_there_is_something_to_check() -> None:
    assert len(DOCUMENTS) > 8
    assert len(SHOWN) > 20


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_shows_every_option(command: str, options: dict[str, set[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*([command] if command else []), "--help"]) == 0
    assert options[command] <= set(re.findall(r"(?<![\w-])-{1,2}[a-z][a-z-]*", capsys.readouterr().out)) | {"--help"}


@pytest.mark.parametrize(
    ("document", "words"), SHOWN, ids=lambda value: value.name if isinstance(value, Path) else " ".join(value)
)
def test_a_command_that_is_shown_exists(document: Path, words: list[str], options: dict[str, set[str]]) -> None:
    given = [word.partition("=")[0] for word in words[1:] if re.match(r"-{1,2}[a-z]", word)]
    if words[0] == "bisect-align":
        command = words[1] if words[1] in COMMANDS else ""
        assert set(given) <= options[command]
    elif words[0] == "python":
        script = REPRO if words[1] == "repro.py" else ROOT / words[1]
        assert script.is_file()
        assert all(f'"{option}"' in script.read_text(encoding="utf-8") or option == "--help" for option in given)
    elif words[0] == "just":
        assert re.search(rf"^{re.escape(words[1])}\b.*:", text_of(ROOT / "justfile"), re.MULTILINE)
    else:
        assert all((ROOT / word).exists() for word in words[1:] if "/" in word)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_options_and_places_in_a_sentence_exist(document: Path, options: dict[str, set[str]]) -> None:
    known = set.union(*options.values())
    scripts = "".join(text_of(path) for path in (REPRO, *(ROOT / "scripts").glob("*.py")))
    for piece in code_of(document):
        for option in re.findall(r"^--[a-z][a-z-]+", piece):
            assert option in known or f'"{option}"' in scripts, piece
        if re.fullmatch(r"(bisect_align|tests|scripts|docs|models)/[\w./-]+", piece) and "NAME" not in piece:
            assert (ROOT / piece).exists(), piece
    for target in re.findall(r"\]\(([^)#:]+)\)", text_of(document)):
        assert (document.parent / target).exists(), target


def test_the_readme_lists_every_option_and_verdict(options: dict[str, set[str]]) -> None:
    english, chinese = text_of(ROOT / "README.md"), text_of(ROOT / "README.zh.md")
    rows = " ".join(re.findall(r"^\| `(-.*?)\|", english, re.MULTILINE))
    assert {option for option in options[""] if option not in ("--help", "--version", "--out")} <= set(
        re.findall(r"-{1,2}[\w-]+", rows)
    )
    for verdict in Verdict:
        assert f"| `{verdict}` |" in english
        assert f"| `{verdict}` |" in chinese


def constants() -> list[tuple[str, str]]:
    """(place, value) of the tables of constants in the notes."""
    rows = [re.findall(r"^\| `((?:\w+\.)+\w+)` \| `([^`]+)` \|", text_of(path), re.MULTILINE) for path in DOCUMENTS]
    return [row for found in rows for row in found]


@pytest.mark.parametrize(("place", "value"), constants())
def test_a_constant_in_the_notes_is_that_of_the_code(place: str, value: str) -> None:
    parts = place.split(".")
    found: Any = importlib.import_module(f"bisect_align.{parts[0]}.{parts[1]}")
    for part in parts[2:]:
        found = getattr(found, part)
    assert found == eval(value, {"__builtins__": {}})


def test_the_example_of_a_toolchain_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(ROOT / "docs" / "add-a-toolchain.md")
    (convention,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (test,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("my-npu.toml").write_text(convention, encoding="utf-8")
    assert load("my-npu.toml").name == "my-npu"
    space: dict[str, Any] = {}
    exec(test, space)
    (tmp_path / "dump").mkdir()
    space["test_my_npu"](tmp_path / "dump")


def test_the_table_of_matches_finds_none_that_is_wrong() -> None:
    """The command of docs/notes/matching.md, on the small cases."""
    command = [sys.executable, str(ROOT / "scripts" / "match_table.py"), "--only", "mnist", "--list", "--markdown"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    columns = next(line for line in done.stdout.splitlines() if line.startswith("| case |"))
    assert columns in text_of(ROOT / "docs" / "notes" / "matching.md")
