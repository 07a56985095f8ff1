"""Every healthy dump in models/, matched and checked by value: no entry at the wrong tensor, and no node run too often."""

from __future__ import annotations

from pathlib import Path

import pytest
from match_table import case_of, row

HEALTHY = sorted((Path(__file__).parents[2] / "models" / "healthy").rglob("case.json"))
RUNS = 7.0  # local runs of each node on average, names that lie or are missing included


@pytest.mark.parametrize("file", HEALTHY, ids=lambda file: file.parent.name)
def test_every_entry_stands_where_its_value_belongs_and_matching_is_cheap(file: Path) -> None:
    found, lines = row(*case_of(file))
    assert not found.wrong, lines
    assert found.runs <= RUNS
    assert found.missed <= 0.1 * found.entries, lines
