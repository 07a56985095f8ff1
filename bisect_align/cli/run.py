"""A run as the command line does it: judged, written, made into cases and walked through where that was asked for, and printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bisect_align.result.result import Result
    from bisect_align.session.options import Options

OUT = Path("bisect-align-out")


def run_and_print(
    options: Options, *, repro: Path | None = None, drill: bool = False, json: bool = False, quiet: bool = False
) -> int:
    """Run, leave result.json and tensors.csv in options.out, print; the exit code of the verdict."""
    from bisect_align.cli.output import exit_code, print_result
    from bisect_align.cli.progress import progress
    from bisect_align.result.files import check
    from bisect_align.session.run import run

    out = options.out or OUT
    check(out)  # before the work, not after it
    if repro is not None:
        check(repro / "case")
    bar = progress(quiet=quiet)
    try:
        result = run(options, bar)
    finally:
        bar.close()
    if repro is not None:
        result = _with_repros(result, options, repro, out)
    print_result(result, out, json=json, quiet=quiet)
    if drill:
        from bisect_align.drill.enter import enter
        from bisect_align.drill.start import ready

        enter(ready(out, lambda _result, _folder: options))
    return exit_code(result)


def _with_repros(result: Result, options: Options, folder: Path, out: Path) -> Result:
    """Write a case of each culprit below `folder`, and the result anew (to `out`), which now names them."""
    from bisect_align.errors import BisectAlignError
    from bisect_align.repro.chosen import chosen
    from bisect_align.repro.write import write
    from bisect_align.result import files
    from bisect_align.session.reopen import Reopened

    if not result.culprits:
        return result
    opened = Reopened(result, options)
    culprits, warnings = list(result.culprits), list(result.warnings)
    for at, (name, culprit) in enumerate(chosen(opened, result)):
        try:
            made = write(opened, result, culprit, folder / name)
        except BisectAlignError as trouble:
            warnings.append(f"no repro of {culprit.region.output!r}: {trouble}")
            continue
        culprits[at] = replace(culprit, repro=str(made.folder))
        if not made.verified:
            warnings.append(f"{made.folder} {made.sentence}")
    result = replace(result, culprits=tuple(culprits), warnings=tuple(warnings))
    files.write(result, out)
    return result
