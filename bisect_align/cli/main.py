"""The program: picks the command, and is the only place where errors become exit codes.

0 aligned, 1 another verdict, 2 trouble (one line on standard error), 130 interrupted. Nothing heavy is imported before a run.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Sequence

from cyclopts import App, CycloptsError, MissingArgumentError, UnusedCliTokensError

from bisect_align import __version__
from bisect_align.cli.align import align
from bisect_align.cli.compare import compare
from bisect_align.cli.conventions import conventions
from bisect_align.cli.demo import demo
from bisect_align.cli.drill import drill
from bisect_align.cli.match import match
from bisect_align.cli.repro import repro
from bisect_align.errors import BisectAlignError, UsageError, one_line
from bisect_align.result.escape import visible

TROUBLE = 2
INTERRUPTED = 130
_LONGEST = 2000  # characters of a message: names in it may be of any length


app = App(
    name="bisect-align",
    version=__version__,
    default_command=align,
    usage="Usage: bisect-align MODEL --target-dump DIR [--inputs PATH] [-o DIR] [OPTIONS]\n       bisect-align COMMAND [--help]",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
app.command(compare)
app.command(conventions)
app.command(demo)
app.command(drill)
app.command(match)
app.command(repro)


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command line (default: the program's own); the exit code. Never shows a traceback unless --verbose asks for it."""
    words = list(sys.argv[1:] if tokens is None else tokens)
    _forgive_encodings()
    try:
        return _run(words)
    except CycloptsError as error:
        return _trouble(f"{_usage(error, words)} (bisect-align --help lists what there is)")
    except BisectAlignError as error:
        return _trouble(str(error))
    except KeyboardInterrupt:
        _trouble("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        from bisect_align.cli.output import swallow

        swallow()
        return 0
    except MemoryError:
        return _trouble("the memory is used up (give --memory a smaller size, such as 512M, or end other programs)")
    except OSError as error:
        return _trouble(f"{error.filename or 'file system'}: {error.strerror or error}")
    except Exception as error:
        if "--verbose" in words:
            traceback.print_exc()
        return _trouble(f"{type(error).__name__}: {error}; please report with --verbose", "internal error")


def _run(words: list[str]) -> int:
    for position, word in enumerate(words, 1):
        if not word or (word.startswith("--") and word.endswith("=")):
            where = word.rstrip("=") or f"word {position} of the command line"
            raise UsageError("is empty", where=where, hint="is a shell variable unset?")
    function, bound, unparsed = app.parse_args(words, exit_on_error=False, print_error=False)
    given = {"command": tuple(words)} if "command" in unparsed else {}
    code = function(*bound.args, **bound.kwargs, **given)
    return code if isinstance(code, int) else 0


def _usage(error: CycloptsError, words: list[str]) -> str:
    """What is wrong with the words. A word that stands where no option asked for it, and an option that was never written, are
    said in our own ones."""
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"{error.unused_tokens[0]!r} belongs to no option; one model is given, everything else goes by options"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.name
        if name.startswith("--") and name not in words:
            first = words[0] if words else ""
            commands = [command for command in app if not command.startswith("-")]
            near = difflib.get_close_matches(first, commands, 1) if first not in commands else []
            return f"{name} is missing" + (f", or did you mean the command {near[0]!r} by {first!r}?" if near else "")
        return f"{name} needs a value" if name.startswith("--") else f"the {name} is missing"
    return str(error).rstrip(".")


def _trouble(text: str, kind: str = "error") -> int:
    """One line, whatever the message holds: names in it come from strangers."""
    line = visible(one_line(text))
    print(f"{kind}: {line if len(line) <= _LONGEST else line[: _LONGEST - 1] + '…'}", file=sys.stderr)
    return TROUBLE


def _forgive_encodings() -> None:
    """A name that the terminal's encoding does not know is escaped; it never ends the run."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    raise SystemExit(main())
