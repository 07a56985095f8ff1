"""The way in: the app, or text where commands are given or nobody watches."""

from __future__ import annotations

import sys

from bisect_align.drill.reader import interactive, scripted
from bisect_align.drill.start import Start
from bisect_align.errors import UsageError


def enter(start: Start, commands: tuple[str, ...] = ()) -> int:
    """Drill until the user leaves; the exit code. Raises UsageError where the app's library is not installed."""
    if commands:
        return scripted(start, commands, sys.stdout)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return interactive(start, sys.stdin, sys.stdout)
    try:
        from bisect_align.drill.app import DrillApp
    except ModuleNotFoundError as error:
        what = f"the app needs {error.name}"
        raise UsageError(what, hint=f"pip install {error.name}, or use --command 'help'") from error
    DrillApp(start).run()
    return 0
