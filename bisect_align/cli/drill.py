"""`drill`: from the verdict down to the wrong element, in a terminal app or by text commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def drill(
    result: Path,
    /,
    *,
    command: Annotated[tuple[str, ...], Parameter(name=("--command", "-c"), negative=(), show_default=False)] = (),
) -> int:
    """Walk the graph around a culprit, look at values, replay, search again, write a case.

    Opens an app in a terminal. With --command, or without a terminal, the same commands are read as text (help lists them).

    Exit code: 0, or 2 for trouble.

    Parameters
    ----------
    result
        Folder of a result, or its result.json.
    command
        A command to do instead of opening the app, such as "why /conv1/Conv_output_0"; may be given several times.
    """
    return open_drill(result, command)


def open_drill(result: Path, commands: tuple[str, ...] = ()) -> int:
    """The app, or text where commands are given or nobody watches; the exit code."""
    from bisect_align.cli.reopen import options_of
    from bisect_align.drill.reader import interactive, scripted
    from bisect_align.drill.start import ready

    start = ready(result, options_of)
    if commands:
        return scripted(start, commands, sys.stdout)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return interactive(start, sys.stdin, sys.stdout)
    try:
        from bisect_align.drill.app import DrillApp
    except ModuleNotFoundError as error:
        from bisect_align.errors import UsageError

        what = f"the app needs {error.name}"
        raise UsageError(what, hint=f"pip install {error.name}, or use --command 'help'") from error
    DrillApp(start).run()
    return 0
