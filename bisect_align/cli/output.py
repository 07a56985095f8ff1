"""Printing a result: text for people, JSON for programs; a reader that goes away early is no error."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bisect_align.result.escape import visible
from bisect_align.result.files import RESULT, TABLE, to_json
from bisect_align.result.result import Result, Verdict

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_WIDEST = 100  # longer lines are hard to read; without a terminal the report has 80 columns


def exit_code(result: Result) -> int:
    """0 for aligned, 1 for every other verdict."""
    return 0 if result.verdict is Verdict.ALIGNED else 1


def print_result(result: Result, out: Path, *, json: bool, quiet: bool) -> None:
    """To standard output: the JSON, or the verdict line (quiet), or the whole report and where the files are."""
    if json:
        say(to_json(result).decode(), end="")
        return
    from bisect_align.report.terminal import report, verdict_line

    show(verdict_line(result) if quiet else report(result))
    if not quiet:
        say(f"\nAll figures: {visible(str(out / RESULT))} and {TABLE}")


def show(what: RenderableType) -> None:
    """Print what rich can lay out."""
    console = _console()
    with console.capture() as text:
        console.print(what)
    for line in text.get().splitlines():
        say(line.rstrip())  # rich fills each line of a table to its width


def _console() -> Console:
    from rich.console import Console

    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else 80
    return Console(file=sys.stdout, width=width, highlight=False)


def say(text: str, end: str = "\n") -> None:
    """Print a text and make sure that it has gone out."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        swallow()


def swallow() -> None:
    """The reader of our output has gone (head, less): what is still to come goes nowhere, in silence."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
