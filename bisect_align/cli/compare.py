"""`compare`: what a target returned for single-operator cases, judged operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bisect_align.cli.align import Flag, Precision

if TYPE_CHECKING:
    from bisect_align.repro.returned import Report, Verdict

_NAMED = 5  # of a list that may be long


def compare(
    cases: Path,
    outputs: Path,
    /,
    *,
    precision: Precision = "auto",
    json: Flag = False,
    quiet: Flag = False,
    verbose: Flag = False,
) -> int:
    """Judge what a target made of the cases that `repro MODEL --all` wrote.

    OUTPUTS holds CASE/test_data_set_N/output_K.npy (or .pb, or .bin with raw values in the golden's type or the model's own).
    Exit code: 0 what came back is right, 1 an operator is wrong or an output cannot be read, 2 trouble, or nothing can be judged.

    Parameters
    ----------
    cases
        The folder that `repro MODEL --all -o DIR` wrote.
    outputs
        What the target returned.
    precision
        Number format of the target; unless given, the finest one that explains the median operator.
    json
        Print every figure as JSON.
    quiet
        Print the counts only.
    verbose
        Show the traceback of an internal error.
    """
    from bisect_align.cli.output import say
    from bisect_align.cli.progress import progress
    from bisect_align.repro.returned import State, judge_returned
    from bisect_align.result.escape import visible
    from bisect_align.result.files import to_json

    bar = progress(quiet=quiet)
    try:
        report = judge_returned(cases, outputs, precision, bar)
    finally:
        bar.close()
    if json:
        say(to_json(report).decode(), end="")
        return int(not report.right)
    for line in () if quiet else _lines(report):
        say(visible(line))
    say(", ".join(f"{report.count(state)} {state}" for state in State))
    return int(not report.right)


def _lines(report: Report) -> Iterator[str]:
    from bisect_align.repro.returned import State

    yield f"Judged as {report.precision} ({report.evidence})."
    for group in _grouped(report.wrong, lambda v: (v.case, v.output)):
        worst = max(group, key=lambda v: v.score if v.score is not None else float("inf"))
        kinds = ", ".join(v.kind for v in group)
        error = f", relative L2 {worst.figures.rel_l2:.3g}" if worst.figures and worst.figures.rel_l2 is not None else ""
        score = f", score {worst.score:.3g}" if worst.score is not None else ""
        of = f" ({worst.kind})" if len(group) > 1 and (error or score) else ""
        told = f": {worst.reason}" if worst.reason else ""
        taken = f" ({worst.taken})" if worst.taken else ""
        yield f"  wrong         {worst.case} ({worst.node}), {worst.output}, {kinds} inputs{error}{score}{of}{told}{taken}"
    for group in _grouped(report.of(State.UNREADABLE), lambda v: (v.reason,)):
        yield f"  not readable  {len(group)} outputs: {group[0].reason}: {_named(v.file for v in group)}"
    for group in _grouped(report.of(State.UNJUDGED), lambda v: (v.kind, v.reason)):
        yield f"  not judged    {len(group)} outputs of {group[0].kind} inputs: {group[0].reason}"
    for group in _grouped((v for v in report.verdicts if v.taken), lambda v: (v.taken,)):
        yield f"  read as such  {len(group)} outputs, {group[0].taken}: {_named(v.case for v in group)}"
    missing = report.of(State.MISSING)
    if missing:
        yield f"  not returned  {len(missing)} outputs of {len({v.case for v in missing})} cases: {_named(v.case for v in missing)}"
    if report.unused:
        yield f"  not used      {len(report.unused)} that belong to no case: {_named(report.unused)}"


def _grouped(verdicts: Iterable[Verdict], key: Callable[[Verdict], tuple[str, ...]]) -> Iterable[list[Verdict]]:
    found: dict[tuple[str, ...], list[Verdict]] = {}
    for one in verdicts:
        found.setdefault(key(one), []).append(one)
    return found.values()


def _named(names: Iterable[str]) -> str:
    """The first few of them, each once."""
    once = list(dict.fromkeys(names))
    return ", ".join(once[:_NAMED]) + (" …" if len(once) > _NAMED else "")
