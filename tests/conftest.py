"""The score of the corpus as a line at the end of the run (also under pytest-xdist)."""

from __future__ import annotations

from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    scores: dict[str, list[str]] = {}
    for report in reports:
        for name, value in report.user_properties:
            if name == "score":
                scores.setdefault(value, []).append(report.nodeid.partition("[")[2].rstrip("]"))
    if scores:
        count = Counter({answer: len(names) for answer, names in scores.items()})
        total = count.total()
        terminalreporter.write_line(
            f"corpus: {count['right']} right, {count['wrong']} wrong, {count['missed']} missed of {total} runs"
        )
        for name in sorted(scores.get("missed", [])):
            terminalreporter.write_line(f"  missed {name}")
