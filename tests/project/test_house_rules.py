"""House rules that a program can check: small modules with speaking names, no pickle, no stub."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bisect_align

PACKAGE = Path(bisect_align.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "base", "misc"}


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 20


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_has_one_job_and_says_which(module: Path) -> None:
    source = module.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 400, "two jobs in one module?"
    assert module.stem not in FORBIDDEN
    assert not source.strip() or ast.get_docstring(ast.parse(source)), "a module says in its docstring what it is for"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_unpickles(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert "pickle" not in {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] != "pickle"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False
