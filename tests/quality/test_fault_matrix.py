"""The promise of the tool, in numbers: faults are found where they are, and healthy chips are left alone.

Some blocks of the fault matrix for each precision, always the same ones, on generated nets and a shipped model, nothing of what is
held out of tuning among them (who mends what a test shows has seen it);
`python scripts/fault_matrix.py` draws as many as one likes, and `--last` prints the tables of the last test run.
"""

from __future__ import annotations

from collections import Counter

import chip_laws
import fault_matrix
import pytest
import quality
import quality_table
import small_nets

MODELS = (*small_nets.GRAPHS, "tinyformer")
BLOCKS = 6


@pytest.mark.parametrize("number", range(BLOCKS))
@pytest.mark.parametrize("precision", chip_laws.LAWS)
def test_nobody_healthy_is_accused_and_large_faults_are_found(
    precision: str, number: int, request: pytest.FixtureRequest
) -> None:
    seed = list(chip_laws.LAWS).index(precision)  # or all precisions would meet the same models and faults
    plan = fault_matrix.Plan(seed, (fault_matrix.ROOT / "models" / "nets",), MODELS, (precision,), False, ())
    records = fault_matrix.block(plan, number)
    if request.config.cache is not None:
        folder = request.config.cache.mkdir("fault_matrix")
        (folder / f"{precision}-{number}.jsonl").write_text("".join(quality.line(r) + "\n" for r in records), encoding="utf-8")
    counts = Counter(r.outcome for r in records)
    failures = "\n".join(quality_table.failures(records))
    assert counts["wrong"] == counts["alarm"] == counts["trouble"] == 0, failures
    large = [r for r in records if r.case.planted and r.effect >= 100 and r.outcome not in ("loss", "range")]
    assert sum(r.outcome != "found" for r in large) <= 1, failures
