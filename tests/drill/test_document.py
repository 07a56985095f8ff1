"""docs/drill.md: its commands are run, its pictures are what the app shows."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from drill_cases import ROOT

from bisect_align.cli.main import main
from bisect_align.drill.app import DrillApp

PAGE = (ROOT / "docs" / "drill.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()]


def test_every_command_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert len(COMMANDS) > 8
    for line in COMMANDS:
        program, *words = shlex.split(line)
        if program == "bisect-align":
            assert main(words) == (1 if words == ["demo"] else 0), line
            assert "error" not in capsys.readouterr().err, line
        else:
            done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
            assert done.returncode == 1, done.stdout + done.stderr


def test_every_key_of_the_page_is_one_of_the_app() -> None:
    known = {binding.key for binding in DrillApp.BINDINGS} | {"v", "t"}  # type: ignore[union-attr]
    spelt = {"/": "slash", "+": "plus", "-": "minus", "[": "", "]": "", "*": ""}
    keys = {spelt.get(key, key) for key in re.findall(r"`([^`\s✓✗?])`", PAGE)} - {""}
    assert len(keys) > 12
    assert keys <= known


def words(svg: str) -> set[str]:
    """Words of a picture without figures, which depend on the processor."""
    text = " ".join(re.findall(r">([^<>]*)</text>", svg))
    return {word for word in re.split(r"[\s\xa0]+", unescape(text)) if not any(char.isdigit() for char in word) and len(word) > 3}


def test_the_pictures_are_what_the_app_shows(tmp_path: Path) -> None:
    shown = tmp_path / "screens"
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "drill_screens.py"), str(shown)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pictures = sorted(re.findall(r"\]\(screens/([\w-]+\.svg)\)", PAGE))
    assert pictures == sorted(file.name for file in shown.iterdir())
    for name in pictures:
        kept, fresh = ((folder / name).read_text(encoding="utf-8") for folder in (ROOT / "docs" / "screens", shown))
        assert words(kept) == words(fresh), f"{name}: python scripts/drill_screens.py makes them anew"
