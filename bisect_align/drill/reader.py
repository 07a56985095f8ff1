"""A drill without a screen: commands in, texts out, in a pipe or line by line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from bisect_align.drill.commands import Outcome, execute, plain
from bisect_align.drill.desk import Desk
from bisect_align.drill.navigation import Position
from bisect_align.drill.saved import keep
from bisect_align.drill.start import Start
from bisect_align.errors import BisectAlignError, one_line
from bisect_align.result.escape import visible
from bisect_align.session.progress import SILENT, Progress

TROUBLE = 2


def scripted(start: Start, commands: Iterable[str], out: TextIO, progress: Progress = SILENT) -> int:
    """Do the commands one after the other; the exit code. Raises BisectAlignError at the first that cannot be done."""
    desk, position = start.open(progress), start.position
    _say(out, *_notes(start, desk))
    try:
        for at, line in enumerate(commands):
            if at:
                _say(out, "")
            done = execute(line, position, desk)
            position = done.position
            _say(out, plain(done.text))
            if done.end:
                break
    finally:
        _say(out, keep(start.shelf, position))
    return 0


def interactive(start: Start, lines: Iterable[str], out: TextIO, progress: Progress = SILENT) -> int:
    """Do what comes in, line by line, until quit or the end. A command that cannot be done says so and the next one is read; the
    exit code is then 2."""
    desk, position, code = start.open(progress), start.position, 0
    _say(out, *_notes(start, desk))
    for line in lines:
        if not line.strip():
            continue
        done = _try(line.strip(), position, desk, out)
        if done is None:
            code = TROUBLE
            continue
        position = done.position
        _say(out, plain(done.text))
        if done.end:
            break
    _say(out, keep(start.shelf, position))
    return code


def _try(line: str, position: Position, desk: Desk, out: TextIO) -> Outcome | None:
    try:
        return execute(line, position, desk)
    except BisectAlignError as error:
        _say(out, f"error: {visible(one_line(error))}")
        return None


def _notes(start: Start, desk: Desk) -> list[str]:
    """What is not as it was at the run, a line each."""
    missing = f"values cannot be had: {desk.missing}" if desk.run is None else ""
    return [f"note: {visible(text)}" for text in (start.note, missing) if text]


def _say(out: TextIO, *texts: str) -> None:
    for text in texts:
        if text or len(texts) == 1:
            print(text, file=out, flush=True)
