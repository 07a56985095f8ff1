"""The program: picks the command, and is the only place where errors become exit codes.

0 aligned, 1 another verdict, 2 trouble (one line on standard error), 130 interrupted. Nothing heavy is imported before a run.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from bisect_align import __version__
from bisect_align.cli.align import align
from bisect_align.cli.demo import demo
from bisect_align.errors import BisectAlignError
from bisect_align.result.escape import visible

TROUBLE = 2
INTERRUPTED = 130


app = App(
    name="bisect-align", version=__version__, default_command=align, help_format="plaintext", suppress_keyboard_interrupt=False
)
app.command(demo)


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command line (default: the program's own); the exit code. Never shows a traceback unless --verbose asks for it."""
    words = list(sys.argv[1:] if tokens is None else tokens)
    _forgive_encodings()
    try:
        return _run(words)
    except CycloptsError as error:
        return _trouble(f"{error} (bisect-align --help lists what there is)")
    except BisectAlignError as error:
        return _trouble(str(error))
    except KeyboardInterrupt:
        _trouble("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        from bisect_align.cli.output import swallow

        swallow()
        return 0
    except OSError as error:
        return _trouble(f"{error.filename or 'file system'}: {error.strerror or error}")
    except Exception as error:
        if "--verbose" in words:
            traceback.print_exc()
        return _trouble(f"{type(error).__name__}: {error}; please report with --verbose", "internal error")


def _run(words: list[str]) -> int:
    function, bound, unparsed = app.parse_args(words, exit_on_error=False, print_error=False)
    given = {"command": tuple(words)} if "command" in unparsed else {}
    code = function(*bound.args, **bound.kwargs, **given)
    return code if isinstance(code, int) else 0


def _trouble(text: str, kind: str = "error") -> int:
    """One line, whatever the message holds: names in it come from strangers."""
    print(f"{kind}: {visible(' '.join(text.split()))}", file=sys.stderr)
    return TROUBLE


def _forgive_encodings() -> None:
    """A name that the terminal's encoding does not know is escaped; it never ends the run."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    raise SystemExit(main())
