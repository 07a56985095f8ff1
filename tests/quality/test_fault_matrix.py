"""The promise of the tool, in numbers: faults are found where they are, and healthy chips are left alone.

Judges every 7th candidate of the fault matrix (7 shares no factor with the 16 kinds, 2 densities, 3 or 6 laws, so every kind,
density and law takes its turn) and every law of a healthy chip. `python scripts/fault_matrix.py` judges all;
`python scripts/fault_matrix.py --last` prints the table of the last test run.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import fake_chip
import graphs
import matrix
import pytest

EVERY = 7


def _keep(request: pytest.FixtureRequest, name: str, score: matrix.Score) -> None:
    if request.config.cache is not None:
        matrix.save(score, Path(request.config.cache.mkdir("fault_matrix")) / f"{name}.jsonl")


@pytest.mark.parametrize("precision", fake_chip.LAWS)
@pytest.mark.parametrize("graph", graphs.GRAPHS)
def test_planted_faults_are_found_where_they_are(
    graph: str, precision: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    bench = matrix.Bench(graph, tmp_path)
    score = matrix.score(bench, islice(bench.planted(precision), 0, None, EVERY))
    _keep(request, f"planted-{graph}-{precision}", score)
    failures = "\n".join(score.failures())
    assert score.planted >= 40
    assert score.counts["wrong"] == 0, failures
    assert score.right >= 0.98, failures


@pytest.mark.parametrize("precision", fake_chip.LAWS)
@pytest.mark.parametrize("graph", graphs.GRAPHS)
def test_healthy_chips_are_left_alone(graph: str, precision: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    bench = matrix.Bench(graph, tmp_path)
    score = matrix.score(bench, bench.healthy(precision, seeds=(11,)))
    _keep(request, f"healthy-{graph}-{precision}", score)
    assert score.counts["quiet"] == len(score.records) > 0, "\n".join(score.failures())
