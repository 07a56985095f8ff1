"""Records of the fault matrix as tables: by precision and effect, by kind, healthy runs, simpler methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import numpy as np
from chip_faults import KINDS
from chip_laws import LAWS
from quality import Record
from quality_blocks import LEAST

Records: TypeAlias = Sequence[Record]

EDGES = (LEAST, 3.0, 8.0, 20.0, 100.0)
LARGE = 8.0
"""Effect from which a fault is expected to be found."""
WORDS = ("found", "wrong", "undecided", "missed")
_ASIDE = ("loss", "range", "trouble")


def table(records: Records) -> str:
    """All of it; what was held out of tuning apart."""
    parts = [("", [r for r in records if not r.held_out]), ("held out of tuning", [r for r in records if r.held_out])]
    return "\n\n".join(f"{'== ' + title + chr(10) if title else ''}{_part(part)}" for title, part in parts if part)


def _part(records: Records) -> str:
    judged = [r for r in records if r.outcome not in _ASIDE]
    planted = [r for r in judged if r.case.planted]
    large = [r for r in planted if r.effect >= LARGE and not _clips(r)]
    healthy = [r for r in judged if not r.case.planted]
    aside = Counter(r.outcome for r in records)
    seconds = [r.seconds for r in judged] or [0.0]
    sections = [
        _by_effect(planted),
        _rows("found/wrong/undecided/missed", large, KINDS, lambda r: r.case.kind),
        _rows("by dump", large, _ways(large), lambda r: f"{r.case.density:.0%} {r.case.form}"),
        _rows("by law", large, _laws(large), _law),
        _rows("by model", large, sorted({r.case.model for r in large}), lambda r: r.case.model),
        _healthy(healthy),
        _methods(judged),
        f"{len(judged)} runs of {len({r.case.model for r in records})} models, {np.mean(seconds):.2f} s each (longest {max(seconds):.1f} s)"
        + "".join(f"; {aside[word]} {word}" for word in _ASIDE if aside[word])
        + f"; {sum(r.others > 0 for r in planted)} runs that name somebody healthy beside the culprit",
    ]
    return "\n\n".join(section for section in sections if section)


def _by_effect(planted: Records) -> str:
    if not planted:
        return ""
    head = [f"{low:g}-{high:g}" for low, high in pairwise(EDGES)] + [f">{EDGES[-1]:g}", f">={LARGE:g}"]
    lines = [f"{'by effect':22}" + "".join(f"{title:>18}" for title in head)]
    rows: list[tuple[str, Records]] = [(p, [r for r in planted if r.case.precision == p and not _clips(r)]) for p in LAWS]
    for title, own in [*rows, ("int8 saturation", [r for r in planted if _clips(r)])]:
        if own:
            cells = [[r for r in own if low <= r.effect < high] for low, high in zip(EDGES, (*EDGES[1:], np.inf), strict=True)]
            cells[-1] += [r for r in own if r.effect == np.inf]
            lines.append(f"{title:22}" + "".join(f"{_cell(c):>18}" for c in [*cells, [r for r in own if r.effect >= LARGE]]))
    return "\n".join([*lines, f"{'wrong first, any effect':24}{sum(r.outcome == 'wrong' for r in planted)}/{len(planted)}"])


def _clips(record: Record) -> bool:
    """A saturation that calibration may have chosen: without the scales nobody can tell."""
    return record.case.precision == "int8" and record.case.kind == "saturation"


def _rows(title: str, records: Records, names: Iterable[str], key: Callable[[Record], str]) -> str:
    """found/wrong/undecided/missed by name and precision."""
    if not records:
        return ""
    lines = [f"{title:30}" + "".join(f"{p:>14}" for p in LAWS)]
    for name in names:
        own = [r for r in records if key(r) == name]
        cells = [_counts([r for r in own if r.case.precision == p]) for p in LAWS]
        if own:
            lines.append(f"{name:30}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def _cell(records: Records) -> str:
    share = sum(r.outcome == "found" for r in records) / len(records) if records else 0.0
    return f"{_counts(records)} {share:5.1%}" if records else "-"


def _counts(records: Records) -> str:
    counted = Counter("undecided" if r.outcome == "coarse" else r.outcome for r in records)
    return "/".join(str(counted[word]) for word in WORDS) if records else "-"


def _healthy(healthy: Records) -> str:
    if not healthy:
        return ""
    lines = [f"{'healthy: alarm/undecided/all':30}{'as it is':>14}{'with a limit':>14}{'together':>14}"]
    rows: list[tuple[str, Records]] = [(p, [r for r in healthy if r.case.precision == p]) for p in LAWS]
    rows += [(name, [r for r in healthy if _law(r) == name]) for name in _laws(healthy)]
    rows.append(("declared auto", [r for r in healthy if r.case.declared == "auto"]))
    for name, own in rows:
        kinds = [[r for r in own if r.case.kind == kind] for kind in ("healthy", "accumulation")]
        if own:
            lines.append(f"{name:30}" + "".join(f"{_alarms(part):>14}" for part in [*kinds, own]))
    return "\n".join(lines)


def _alarms(records: Records) -> str:
    counted = Counter(r.outcome for r in records)
    return f"{counted['alarm']}/{counted['undecided']}/{len(records)}"


def _methods(judged: Records) -> str:
    """Shares of false alarms among the healthy runs, and of right and wrong among the large faults, on the same runs."""
    compared = [r for r in judged if r.baselines]
    if not compared:
        return ""
    lines = [f"{'false alarms/right/wrong':30}" + "".join(f"{p:>16}" for p in LAWS)]
    for method in [*compared[0].baselines, "bisect-align"]:
        words: list[tuple[Record, str]] = [(r, r.baselines.get(method, r.outcome)) for r in compared]
        cells = []
        for precision in LAWS:
            healthy = [w for r, w in words if r.case.precision == precision and not r.case.planted]
            planted = [w for r, w in words if r.case.precision == precision and r.case.planted and r.effect >= LARGE]
            shares = [_share(healthy, "alarm"), _share(planted, "found"), _share(planted, "wrong")]
            cells.append("/".join(shares) if healthy or planted else "-")
        lines.append(f"{method:30}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def _share(words: Sequence[str], word: str) -> str:
    return f"{words.count(word) / len(words):.2f}" if words else "-"


def _law(record: Record) -> str:
    return f"{record.case.precision} {record.case.law}"


def _laws(records: Records) -> list[str]:
    met = {_law(r) for r in records}
    return [f"{p} {law}" for p, laws in LAWS.items() for law in laws if f"{p} {law}" in met]


def _ways(records: Records) -> list[str]:
    met: set[tuple[Any, ...]] = {(-r.case.density, r.case.form) for r in records}
    return [f"{-density:.0%} {form}" for density, form in sorted(met)]


def failures(records: Records) -> list[str]:
    """A line for each record that is not as it should be, the worst first."""
    order = ("wrong", "alarm", "trouble", "coarse", "missed", "undecided")
    bad = [r for r in records if r.outcome in order and (r.outcome != "missed" or r.effect >= LARGE)]
    ranked = sorted(bad, key=lambda r: (order.index(r.outcome), -r.effect))
    return [_line(r) for _, group in groupby(ranked, lambda r: r.outcome) for r in group]


def _line(record: Record) -> str:
    where = (
        f" at {record.answer.output} (score {record.answer.score:.3g}, {record.answer.statistic})" if record.answer.output else ""
    )
    return (
        f"{record.outcome:9} {record.case}, effect {record.effect:.3g}: {record.answer.verdict}{where}: {record.answer.summary}"
    )
