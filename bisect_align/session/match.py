"""Matching alone: the whole dump against the model, with evidence, and a map that can be edited and given back."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator

import numpy as np

from bisect_align.dumps.entry import Role
from bisect_align.errors import DumpError
from bisect_align.matching.match import Matched
from bisect_align.matching.observations import Observations
from bisect_align.model.parameters import never_fed
from bisect_align.result.match import Leftover, MatchReport, MatchRow
from bisect_align.session.case import Case, prepare
from bisect_align.session.evidence import match_whole
from bisect_align.session.options import Options
from bisect_align.session.progress import SILENT, Progress

OLD_SECONDS = 600.0  # files that are so much older than the rest of a dump, and ten times its spread, are leftovers
OLD_SPREADS = 10.0


def match(options: Options, progress: Progress = SILENT) -> MatchReport:
    """Match every entry of the dump. Raises BisectAlignError; MatchError where nothing matches."""
    with np.errstate(all="ignore"):
        progress.stage("loading")
        case = prepare(options)
        progress.stage("matching")
        return _report(case, *match_whole(case))


def _report(case: Case, matched: Matched, observations: Observations) -> MatchReport:
    graph = case.model.graph
    placed = matched.placed
    rows = tuple(
        MatchRow(
            tensor=name,
            op=graph.nodes[graph.producer[name]].op,
            entry=seen.claim.entry,
            rule=str(seen.claim.rule),
            status=str(seen.status),
            fix=seen.fix.label if seen.fix else "",
            residual=seen.residual,
            confidence=seen.confidence,
            named=seen.claim.tensor if seen.claim.tensor != name else None,
        )
        for name in graph.tensors
        if (seen := placed.get(name)) is not None
    )
    used = matched.used | case.claims.beside(graph.order.keys() - never_fed(graph))
    colliding = {
        key: f"{' and '.join(map(repr, names))} have this spelling"
        for key, names in case.claims.ambiguous.items()
        if key not in used
    }
    free = [e for e in case.catalogue.entries if e.role is Role.TARGET and e.key not in used and e.key not in colliding]
    ignored = set(case.claims.ignored)
    return MatchReport(
        model=str(case.options.model),
        dump=str(case.options.target_dump),
        tensors=len(graph.tensors),
        entries=len(case.catalogue.entries),
        tolerance=matched.tolerance.fits,
        rows=rows,
        missing=tuple(Leftover(t, matched.unknown.get(t, "no entry holds it")) for t in graph.tensors if t not in placed),
        unmatched=tuple(
            Leftover(
                e.key, "left out by the map" if e.key in ignored else matched.dropped.get(e.key, "fits no tensor of the model")
            )
            for e in free
        ),
        twins=tuple(Leftover(k, f"repeats {v!r}") for k, v in sorted(matched.twins.items())),
        colliding=tuple(Leftover(k, v) for k, v in colliding.items()),
        unreadable=tuple(Leftover(p.names[0] if p.names else p.source.name, p.reason) for p in case.catalogue.problems),
        stale=tuple(_stale(case, matched, observations)),
        references=sum(e.role is Role.REFERENCE for e in case.catalogue.entries),
        notes=tuple(dict.fromkeys(case.warnings)),
    )


def _stale(case: Case, matched: Matched, observations: Observations) -> Iterator[Leftover]:
    """Entries that look like leftovers: all zero where the prediction is not, equal to another tensor's entry, older than the rest."""
    seen: dict[bytes, str] = {}
    times: dict[str, float] = {}
    for tensor, found in matched.placed.items():
        key = found.claim.entry
        try:
            values = observations.value(tensor)
            times[key] = case.entries[key].source.stat().st_mtime
        except (DumpError, OSError):
            continue
        if values.size < 2:
            continue
        if not found.supported and found.residual > 0 and not values.any():
            yield Leftover(key, f"all zero, {tensor!r} should not be")
            continue
        digest = hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16).digest()
        if found.supported:
            seen[digest] = key
        elif digest in seen:
            yield Leftover(key, f"holds the same values as {seen[digest]!r}")
    if len(times) > 4:
        middle = statistics.median(times.values())
        spread = statistics.median(abs(t - middle) for t in times.values())
        for key, time in times.items():
            if middle - time > max(OLD_SECONDS, OLD_SPREADS * spread):
                yield Leftover(key, f"its file is {(middle - time) / 60:.0f} minutes older than the rest of the dump")


def map_text(report: MatchReport) -> str:
    """The match as a map file (TOML): edit it and give it back with --map. Entries that fit nothing stand in it as comments."""
    lines = [
        "# Entry of the dump = tensor of the model. An empty name leaves the entry out.",
        "[tensors]",
        *(f"{_quoted(r.entry)} = {_quoted(r.tensor)}{_why(r)}" for r in report.rows),
    ]
    lines += [
        f'# {_quoted(left.name)} = ""  # {_plain(left.reason)}' for left in (*report.unmatched, *report.twins, *report.colliding)
    ]
    return "\n".join(lines) + "\n"


def _why(row: MatchRow) -> str:
    if row.named is not None:
        return f"  # named after {_plain(row.named)}"
    return "" if row.status == "named" else f"  # {row.status}"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _quoted(text: str) -> str:
    # JSON escapes are a subset of those of a TOML basic string, but for DEL
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
