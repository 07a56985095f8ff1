"""The report of `match`: counts, the table, and what each word in it means."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from bisect_align.report.match import report
from bisect_align.result.match import MatchReport, MatchRow

STATUSES = ("named", "alias", "name-only", "unsupported", "wrong-shape")


def shown(*statuses: str) -> str:
    rows = tuple(MatchRow(f"t{k}", "Conv", f"e{k}", "exact", status, "id", 0.5, 0.6) for k, status in enumerate(statuses))
    found = MatchReport("m.onnx", "dump", len(rows), len(rows), 0.01, rows, (), (), (), (), (), (), 0, ())
    console = Console(file=StringIO(), width=80, color_system=None)
    console.print(report(found))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_is_explained_where_it_stands_in_the_table_and_only_there(status: str) -> None:
    assert (f"\n{status}: " in shown(status)) == (status != "named")
    assert all(f"\n{other}: " not in shown(status) for other in STATUSES if other != status)


def test_an_unsupported_entry_comes_with_what_to_do() -> None:
    text = " ".join(shown("unsupported").split())
    assert "without `match`" in text
    assert "--map" in text


def test_lines_fit_the_terminal() -> None:
    assert all(len(line) <= 80 for line in shown(*STATUSES).splitlines())
