"""`drill`: from the verdict down to the wrong element, in a terminal app or by text commands."""

from __future__ import annotations

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
    from bisect_align.cli.reopen import options_of
    from bisect_align.drill.enter import enter
    from bisect_align.drill.start import ready

    return enter(ready(result, options_of), command)
