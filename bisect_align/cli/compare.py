"""`compare`: what a target returned for single-operator cases, judged operator by operator."""

from __future__ import annotations

from pathlib import Path

from bisect_align.cli.align import Flag, Precision


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

    OUTPUTS holds CASE/test_data_set_N/output_K.npy (or .pb, or .bin with raw values in the golden's own type). Exit code: 0 what
    came back is right, 1 an operator is wrong, 2 trouble.

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
    from collections import Counter

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
        return int(bool(report.wrong))
    if not quiet:
        say(visible(f"Judged as {report.precision} ({report.evidence})."))
        for one in report.wrong:
            error = f", relative L2 {one.figures.rel_l2:.3g}" if one.figures and one.figures.rel_l2 is not None else ""
            score = f", score {one.score:.3g}" if one.score is not None else ""
            reason = f": {one.reason}" if one.reason else ""
            say(visible(f"  wrong       {one.case} ({one.node}), {one.kind} inputs, {one.output}{error}{score}{reason}"))
        unjudged = Counter((one.kind, one.reason) for one in report.verdicts if one.state is State.UNJUDGED)
        for (kind, reason), count in unjudged.items():
            say(visible(f"  not judged  {count} outputs of {kind} inputs: {reason}"))
        missing = sorted({one.case for one in report.verdicts if one.state is State.MISSING})
        if missing:
            named = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
            say(visible(f"  not returned, at least in part: {len(missing)} cases, {named}"))
    say(", ".join(f"{report.count(state)} {state}" for state in State))
    return int(bool(report.wrong))
