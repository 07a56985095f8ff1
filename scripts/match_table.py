#!/usr/bin/env python3
"""Match healthy dumps and check every match by value: the coverage table of docs/notes/matching.md.

    python scripts/match_table.py [CORPUS] [--only WORD] [--list] [--markdown]

One row for each case.json under CORPUS (default: models/healthy):

entries    of the target. tensors: of the model, constants left out. name, alias, value: how many of these were matched so
odd        of the matched ones, those that no prediction supports (in a healthy dump: constants, or much noise)
twins      entries that repeat another one, or a graph input; left: those that were put nowhere (weights, steps of the compiler)
copies     of the latter, entries that fit a tensor by golden values which another entry stands for
missed     of the latter, entries that fit tensors by golden values for which no entry stands
wrong      matches where another tensor of the same size fits the entry clearly better, by golden values
passes     local passes; runs: node runs for each node of the model (2 local passes without a look aside: 2.0)

The truth is taken by value and knows no names: each entry is compared with every golden tensor of its size, in every layout.
Two or three elements of a coarse run are no truth (fewer than 24 bits).
All tensors within 1.5 times the best error, or within the tie floor of the dump's precision, count as right. Golden values and
not predictions stand behind it: in an int8 dump with a large accumulated error an entry may have none. Exit code 1: one is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from case_json import options_of

from bisect_align.dumps.entry import Entry, Role
from bisect_align.errors import BisectAlignError, DumpError
from bisect_align.golden.protocol import Unavailable
from bisect_align.matching.claims import Rule
from bisect_align.matching.fit import BITS, bits, carries_evidence, read, residual
from bisect_align.matching.layout import fixes
from bisect_align.matching.match import Matched, match
from bisect_align.matching.matcher import Matcher
from bisect_align.matching.observations import Observation, Status
from bisect_align.model.dtypes import is_float
from bisect_align.session.case import Case, prepare
from bisect_align.session.options import Options

Array = np.ndarray[Any, Any]
CLEARLY = 1.5  # how much better another tensor must fit before a match is called wrong


@dataclass(frozen=True)
class Row:
    case: str
    entries: int
    tensors: int
    name: int
    alias: int
    value: int
    odd: int
    twins: int
    left: int
    copies: int
    missed: int
    wrong: int
    passes: int
    runs: float


def case_of(file: Path) -> tuple[str, Options]:
    """Name and options of a case.json."""
    told = json.loads(file.read_text(encoding="utf-8"))
    return told["name"], options_of(file.parent, told)


def golden_by_size(case: Case) -> dict[int, dict[str, Array]]:
    """Golden float tensors that can be told from others by value, by number of elements."""
    graph = case.model.graph
    found: dict[int, dict[str, Array]] = defaultdict(dict)
    for name, value in case.engine.stream(case.inputs.values, [t for t in graph.tensors if not graph.is_constant(t)]):
        if not isinstance(value, Unavailable) and is_float(value.dtype) and carries_evidence(value):
            found[value.size][name] = value
    return found


def values_of(entry: Entry, seen: Observation | None, matcher: Matcher) -> Array | None:
    """The entry's real values; a headerless one is read as the tensor that it was put at."""
    try:
        if entry.shape is not None:
            return read(entry, np.dtype(np.float32), entry.shape)
        return matcher.observations.value(seen.tensor) if seen is not None else None
    except DumpError:
        return None


def truth(values: Array, golden: dict[str, Array], matched: Matched) -> tuple[dict[str, float], set[str]]:
    """Error of every tensor of the entry's size under its best layout, and those that count as right (none: no truth)."""
    errors = {
        name: min((residual(fix.apply(values), wanted) for fix in fixes(values.shape, wanted.shape)), default=np.inf)
        for name, wanted in golden.items()
    }
    best = min(errors.values(), default=np.inf)
    if best >= matched.tolerance.fits or bits(values.size, best) < BITS:
        return errors, set()
    return errors, {name for name, error in errors.items() if error <= max(CLEARLY * best, matched.tolerance.tie)}


def row(name: str, options: Options) -> tuple[Row, list[str]]:
    """One case, and a line for each wrong or missed match."""
    case = prepare(options)
    graph, counters = case.model.graph, case.engine.counters
    ran = counters.node_runs
    matcher = Matcher(graph, case.engine, case.inputs.values, case.catalogue.entries, case.claims)
    matched = match(matcher)
    passes, runs = counters.local_passes, (counters.node_runs - ran) / max(len(graph.nodes), 1)
    placed = {seen.claim.entry: seen for seen in matched.placed.values()}
    target = [entry for entry in case.catalogue.entries if entry.role is Role.TARGET]
    spoken = case.claims.beside(graph.order)
    wrong, missed, copies = [], [], 0
    golden = golden_by_size(case)
    for entry in target:
        seen = placed.get(entry.key)
        values = values_of(entry, seen, matcher)
        if values is None or not is_float(values.dtype) or not carries_evidence(values):
            continue
        errors, right = truth(values, golden.get(values.size, {}), matched)
        if not right:
            continue
        best = min(right, key=errors.__getitem__)
        if seen is None and entry.key not in matched.twins and entry.key not in spoken:
            if right & matched.placed.keys():
                copies += 1
            else:
                missed.append(f"missed {entry.key}: {best} ({errors[best]:.2g}); {matched.dropped.get(entry.key, '')}")
        elif seen is not None and seen.tensor in errors and seen.tensor not in right:
            wrong.append(f"wrong  {entry.key}: {seen.tensor} ({errors[seen.tensor]:.2g}), not {best} ({errors[best]:.2g})")
    ways = [seen.status if seen.status is Status.ALIAS else seen.claim.rule for seen in placed.values()]
    alias, value = ways.count(Status.ALIAS), ways.count(Rule.VALUE)
    return Row(
        case=name,
        entries=len(target),
        tensors=sum(not graph.is_constant(t) for t in graph.tensors),
        name=len(ways) - alias - value,
        alias=alias,
        value=value,
        odd=sum(not seen.supported for seen in placed.values()),
        twins=len(matched.twins),
        left=sum(e.key not in placed and e.key not in matched.twins and e.key not in spoken for e in target),
        copies=copies,
        missed=len(missed),
        wrong=len(wrong),
        passes=passes,
        runs=runs,
    ), wrong + missed


def table(rows: list[Row], *, markdown: bool) -> str:
    """The rows with their sums, for a terminal or as Markdown."""
    heads = [field.name for field in fields(Row)]
    sums = [str(sum(getattr(one, head) for one in rows)) for head in heads[1:-2]]
    body = [[f"{value:.1f}" if isinstance(value, float) else str(value) for value in vars(one).values()] for one in rows]
    lines = [heads, *body, [f"all {len(rows)}", *sums, "", ""]]
    if markdown:
        shown = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([shown[0], "|---|" + "---:|" * (len(heads) - 1), *shown[1:]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, default=Path(__file__).parent.parent / "models" / "healthy")
    parser.add_argument("--only", default="", help="cases whose folder's name holds this word")
    parser.add_argument("--list", action="store_true", help="say which matches are wrong or missed")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    rows, failed = [], False
    for file in sorted(file for file in asked.corpus.rglob("case.json") if asked.only in file.parent.name):
        name, options = case_of(file)
        try:
            with np.errstate(all="ignore"):
                one, lines = row(name, options)
        except BisectAlignError as trouble:
            print(f"{name}: {trouble}", file=sys.stderr)
            failed = True
            continue
        rows.append(one)
        if asked.list and lines:
            print(name, *lines, sep="\n  ")
    print(table(rows, markdown=asked.markdown) if rows else "no case was found")
    return int(failed or not rows or any(one.wrong for one in rows))


if __name__ == "__main__":
    sys.exit(main())
