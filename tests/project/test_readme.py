"""The README's commands, run as a reader would paste them: a fresh copy of the project, a fresh environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[Path]:
    """The files that a clone of this tree would hold."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode == 0:
        return [Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name]
    return [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]  # an unpacked archive


def clone(target: Path) -> None:
    for name in tracked():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def readme_command(word: str) -> str:
    script = ROOT / "scripts" / "readme_command.py"
    return subprocess.run([sys.executable, str(script), word], capture_output=True, text=True, check=True).stdout.strip()


def paste(command: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What bash answers, in a fresh clone with a fresh virtual environment."""
    clone(tmp_path / "clone")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    drop = {"PYTHONPATH", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"}
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=tmp_path / "clone",
        env={**kept, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_readme_probe() -> None:
    """What the README's test command runs when this file runs it (all of its tests would include this file)."""
    assert readme_command("pytest")


@pytest.mark.slow
def test_the_demo_command_finds_a_fault(tmp_path: Path) -> None:
    done = paste(readme_command("demo"), tmp_path)
    assert done.returncode == 1, done.stderr
    assert "FAULT: " in done.stdout
    assert "/smooth/AveragePool" in done.stdout


@pytest.mark.slow
def test_the_test_command_runs_the_tests(tmp_path: Path) -> None:
    done = paste(readme_command("pytest"), tmp_path, PYTEST_ADDOPTS="-k test_readme_probe")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
